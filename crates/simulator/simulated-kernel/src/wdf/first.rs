//! Which IRPs a driver wants to see before the framework.

use litemap::LiteMap;
use wdk_bindings::{NTSTATUS, PIRP, UCHAR, WDFDEVICE};

/// `EvtDeviceWdmIrpPreprocess`.
pub type Preprocess = unsafe extern "C" fn(WDFDEVICE, PIRP) -> NTSTATUS;

/// What a driver wants to see first.
#[derive(Clone, Default)]
pub struct First(LiteMap<UCHAR, Wanted>);

/// The routine for a major function.
#[derive(Clone)]
struct Wanted {
    routine: Preprocess,
    /// For these minor functions only; for all if there are none.
    minors: Vec<UCHAR>,
}

impl First {
    /// Returns true if the device's IRPs have a stack location more, for the driver's completion routine.
    pub fn is_wanted(&self) -> bool {
        !self.0.is_empty()
    }

    /// The routine for a kind of IRPs, if the driver wants to see them.
    pub fn routine(&self, major: UCHAR, minor: UCHAR) -> Option<Preprocess> {
        let wanted = self.0.get(&major)?;
        (wanted.minors.is_empty() || wanted.minors.contains(&minor)).then_some(wanted.routine)
    }

    /// Returns true if the driver sees requests of that kind first.
    pub fn sees(&self, major: UCHAR) -> bool {
        self.routine(major, 0).is_some()
    }

    /// The last routine for a major function is the one that counts. False if the minor functions were said before.
    pub fn set(&mut self, major: UCHAR, routine: Preprocess, new: Vec<UCHAR>) -> bool {
        let known = self.0.get(&major).map(|wanted| wanted.minors.clone()).unwrap_or_default();
        if !new.is_empty() && !known.is_empty() {
            return false;
        }
        let minors = if new.is_empty() { known } else { new };
        self.0.insert(major, Wanted { routine, minors });
        true
    }
}
