//! One spelling for a type, whether C or Rust declares it, so that declarations can be compared as text.
//!
//! Integers are spelled as in Rust, pointers as `T*` or `const T*`, arrays as `T[n]`, functions as `fn(a, b) -> r`.

use std::ffi::c_void;

use serde_json::Value;

/// A type of the crate that stands for a type of C.
pub trait Spelled {
    fn spelling() -> String;
}

macro_rules! spelled_as {
    ($($type:ty => $spelling:literal,)+) => {
        $(impl Spelled for $type {
            fn spelling() -> String {
                $spelling.to_owned()
            }
        })+
    };
}

spelled_as! {
    () => "void",
    c_void => "void",
    u8 => "u8",
    u16 => "u16",
    u32 => "u32",
    u64 => "u64",
    usize => "usize",
    ndkpi::NtStatus => "NTSTATUS",
    ndkpi::NDK_OBJECT_TYPE => "NDK_OBJECT_TYPE",
    ndkpi::NDK_OPERATION_TYPE => "NDK_OPERATION_TYPE",
    ndkpi::NDK_RDMA_TECHNOLOGY => "NDK_RDMA_TECHNOLOGY",
    ndkpi::NET_PNP_EVENT_CODE => "NET_PNP_EVENT_CODE",
    ndkpi::NDK_LOGICAL_ADDRESS => "NDK_LOGICAL_ADDRESS",
    ndkpi::NDK_SGE_ADDRESS => "NDK_SGE_ADDRESS",
    ndkpi::GUID => "GUID",
    ndkpi::IN_ADDR => "IN_ADDR",
    ndkpi::SOCKADDR => "SOCKADDR",
    ndkpi::MDL => "MDL",
    ndkpi::NDIS_RSS_PROCESSOR_INFO => "NDIS_RSS_PROCESSOR_INFO",
    ndkpi::WSK_CLIENT => "WSK_CLIENT",
}

impl<T: Spelled> Spelled for *const T {
    fn spelling() -> String {
        format!("const {}*", T::spelling())
    }
}

impl<T: Spelled> Spelled for *mut T {
    fn spelling() -> String {
        format!("{}*", T::spelling())
    }
}

impl<T: Spelled, const N: usize> Spelled for [T; N] {
    fn spelling() -> String {
        format!("{}[{N}]", T::spelling())
    }
}

/// A function type: what it takes and what it returns.
#[derive(Debug, PartialEq, Eq)]
pub struct Prototype {
    pub parameters: Vec<String>,
    pub result: String,
}

impl Prototype {
    /// The prototype as one line. `const` is left out: C and Rust put it in different places.
    pub fn spelling(&self) -> String {
        format!("fn({}) -> {}", self.parameters.join(", "), self.result).replace("const ", "")
    }
}

/// A pointer to a function. Only the convention and safety of NDKPI implement it.
pub trait Function {
    fn prototype() -> Prototype;
}

macro_rules! functions_of {
    ($($parameter:ident)*) => {
        impl<$($parameter: Spelled,)* R: Spelled> Function for unsafe extern "system" fn($($parameter),*) -> R {
            fn prototype() -> Prototype {
                Prototype { parameters: vec![$($parameter::spelling()),*], result: R::spelling() }
            }
        }
    };
}

functions_of!(A);
functions_of!(A B);
functions_of!(A B C);
functions_of!(A B C D);
functions_of!(A B C D E);
functions_of!(A B C D E F);
functions_of!(A B C D E F G);
functions_of!(A B C D E F G H);
functions_of!(A B C D E F G H I);
functions_of!(A B C D E F G H I J);
functions_of!(A B C D E F G H I J K);
functions_of!(A B C D E F G H I J K L);

// A bare function pointer is not `Spelled`: in C every one of them may be null, so a parameter or slot that cannot hold
// null does not compile here.
impl<F: Function> Spelled for Option<F> {
    fn spelling() -> String {
        F::prototype().spelling()
    }
}

/// The types of C that have another name in Rust.
const NAMES: [(&str, &str); 28] = [
    ("ADDRESS_FAMILY", "u16"),
    ("BOOLEAN", "u8"),
    ("CHAR", "u8"),
    ("KAFFINITY", "usize"),
    ("NDIS_HANDLE", "void*"),
    ("NDIS_NIC_SWITCH_ID", "u32"),
    ("NDIS_NIC_SWITCH_VPORT_ID", "u32"),
    ("NDIS_PORT_NUMBER", "u32"),
    ("NDIS_STATUS", "NTSTATUS"),
    ("NET_IFINDEX", "u32"),
    ("PNDIS_NDK_CAPABILITIES", "NDIS_NDK_CAPABILITIES*"),
    ("PNDIS_OPEN_NDK_ADAPTER_PARAMETERS", "NDIS_OPEN_NDK_ADAPTER_PARAMETERS*"),
    ("PNDIS_RSS_PROCESSOR_INFO", "NDIS_RSS_PROCESSOR_INFO*"),
    ("PSIZE_T", "usize*"),
    ("PSOCKADDR", "SOCKADDR*"),
    ("PVOID", "void*"),
    ("PWSK_CLIENT", "WSK_CLIENT*"),
    ("SIZE_T", "usize"),
    ("UCHAR", "u8"),
    ("UINT", "u32"),
    ("UINT32", "u32"),
    ("UINT64", "u64"),
    ("ULONG", "u32"),
    ("ULONG64", "u64"),
    ("ULONG_PTR", "usize"),
    ("USHORT", "u16"),
    ("VOID", "void"),
    ("void", "void"),
];

/// The spelling of a type that C declares, without `const`. Function types are looked up among the facts.
pub fn of_c(declared: &str, facts: &Value) -> String {
    let declared = declared.strip_prefix("const ").unwrap_or(declared).trim();
    if let Some(element) = declared.strip_suffix("[]") {
        return format!("{}*", of_c(element, facts));
    }
    if let Some((element, length)) = declared.strip_suffix(']').and_then(|declared| declared.split_once('[')) {
        return format!("{}[{length}]", of_c(element, facts));
    }
    if let Some(pointee) = declared.strip_suffix('*') {
        return format!("{}*", of_c(pointee, facts));
    }
    if let Some(function) = facts["functions"].get(declared) {
        return prototype_of_c(function, facts).spelling();
    }
    NAMES.iter().find(|(name, _)| *name == declared).map_or(declared, |(_, spelling)| *spelling).to_owned()
}

/// The prototype of a function type that C declares.
pub fn prototype_of_c(function: &Value, facts: &Value) -> Prototype {
    let spelling = |value: &Value| of_c(value.as_str().expect("a type is text"), facts);
    let parameters = function["params"].as_array().expect("a function has a list of parameters");
    Prototype {
        parameters: parameters.iter().map(|parameter| spelling(&parameter["type"])).collect(),
        result: spelling(&function["returns"]),
    }
}
