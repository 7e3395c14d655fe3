//! Functions of a memory window (NDKPI 5.5).

use super::{NDK_FN_CLOSE_OBJECT, NDK_FN_QUERY_EXTENSION_INTERFACE};
use crate::NDK_MW;

/// The table of a memory window (NDKPI 4).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct NDK_MW_DISPATCH {
    /// Closes the window.
    pub NdkCloseMw: Option<NDK_FN_CLOSE_OBJECT>,
    /// Asks for an extension.
    pub NdkQueryExtension: Option<NDK_FN_QUERY_EXTENSION_INTERFACE>,
    /// Tells the token for the peer.
    pub NdkGetRemoteTokenFromMw: Option<NDK_FN_GET_REMOTE_TOKEN_FROM_MW>,
}

slots!(NDK_MW_DISPATCH: NdkCloseMw, NdkQueryExtension, NdkGetRemoteTokenFromMw);

/// `NdkGetRemoteTokenFromMw`: the token with which the peer names this window; immediate.
///
/// IRQL <= `DISPATCH_LEVEL` (NDKPI 5.5, NDKPI 7.6).
pub type NDK_FN_GET_REMOTE_TOKEN_FROM_MW = unsafe extern "system" fn(pNdkMw: *mut NDK_MW) -> u32;
