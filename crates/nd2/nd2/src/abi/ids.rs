//! Interface identifiers (`NDSPI 1`, `NDSPI 2`, `NDSPI 8`; the others are those of the public header, but for the
//! two that begin with Soft, which are this provider's own).

#![expect(non_upper_case_globals, reason = "the names of the public header")]

use ndkpi::GUID;

macro_rules! ids {
    ($($name:ident = $digits:literal;)+) => {
        $(#[doc = concat!("`", stringify!($name), "`.")] pub const $name: GUID = GUID::from_u128($digits);)+
    };
}

ids! {
    IID_IUnknown = 0x00000000_0000_0000_C000_000000000046;
    IID_IND2Overlapped = 0xABF72719_B016_4A40_A6F7_622791A7044C;
    IID_IND2CompletionQueue = 0x20CC445E_64A0_4CBB_AA75_F6A7251FDA9E;
    IID_IND2SharedReceiveQueue = 0xAABD67DC_459A_4DB1_826B_56CFCC278883;
    IID_IND2MemoryWindow = 0x070FE1F5_0AB5_4361_88DB_974BA704D4B9;
    IID_IND2MemoryRegion = 0x55DFEA2F_BC56_4982_8A45_0301BE46C413;
    IID_IND2QueuePair = 0xEEF2F332_B75D_4063_BCE3_3A0BAD2D02CE;
    IID_IND2Connector = 0x7DD615C4_6B4C_4866_950C_F3B1D25A5302;
    IID_IND2Listener = 0x65D23D83_3A57_4E02_86A4_350165C2D130;
    IID_IND2Adapter = 0xD89C798C_4823_4D69_846C_DFDCCFF9E5F3;
    IID_IND2Provider = 0x49EAE6C1_76C4_46D0_8003_5C2EAA2C9A8E;
    IID_INDOverlapped = 0xC859E15E_75E2_4FE3_8D6D_0DFF36F02442;
    IID_INDCompletionQueue = 0x1245A633_2A32_473A_830C_E05D1F869D02;
    IID_INDMemoryWindow = 0x070FE1F5_0AB5_4361_88DB_974BA704D4B9;
    IID_INDEndpoint = 0xDBD00EAB_B679_44A9_BD65_E82F3DE12D1A;
    IID_INDConnector = 0x1BCAF2D1_E274_4AEB_AC57_CD5D4376E0B7;
    IID_INDListen = 0xBB902588_BA3F_4441_9FE1_3B6795E4E668;
    IID_INDAdapter = 0xA023C5A0_5B73_43BC_8D20_33AA07E9510F;
    IID_INDProvider = 0x0C5DD316_5FDF_47E6_B2D0_2A6EDA8D39DD;
    IID_IClassFactory = 0x00000001_0000_0000_C000_000000000046;
    IID_SoftAdapter = 0x2B8C0E5A_61F4_4D7E_9A33_7D1C54E0B9F1;
    IID_SoftQueuePair = 0x95D3A7C4_0E6B_4B0F_8C21_F37A1D65E802;
}
