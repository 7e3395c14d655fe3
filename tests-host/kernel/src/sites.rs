//! Where a call comes from: whose code is on the stack, and which call sites.
//!
//! Drivers call each other by interfaces that the kernel does not see, so what a thread was called for does not say whose code
//! it runs now. The stack does: each function belongs to a crate, and a test says of which crates each driver is made.

use std::{collections::BTreeMap, sync::OnceLock};

use object::{Object as _, ObjectSymbol as _, SymbolKind};

use crate::{
    context::{self, DriverId},
    kernel::{Kernel, State, lock},
};

/// Frames of drivers that make a call site: the one that calls, and two of its callers, because helpers are called from many
/// places.
const DEPTH: usize = 3;

/// The drivers by the crates that their images are made of.
pub type Images = BTreeMap<String, String>;

/// A function of this program.
struct Function {
    begin: usize,
    end: usize,
    /// The crate that it comes from.
    home: String,
}

/// All functions, by their addresses.
fn functions() -> &'static [Function] {
    static FUNCTIONS: OnceLock<Vec<Function>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        let bytes = std::fs::read("/proc/self/exe").expect("a program can read its own file");
        let file = object::File::parse(&*bytes).expect("a program is an object file");
        let anchor = file.symbols().find(|symbol| symbol.name() == Ok("KeInitializeDpc"));
        let anchor = anchor.expect("the routine is not mangled").address();
        let loaded = crate::wdm::anchor() as u64;
        let text = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
        let mut all: Vec<Function> = text
            .filter_map(|symbol| {
                let begin = usize::try_from(symbol.address().wrapping_sub(anchor).wrapping_add(loaded)).ok()?;
                let home = home(&format!("{:#}", rustc_demangle::try_demangle(symbol.name().ok()?).ok()?));
                Some(Function { begin, end: begin + usize::try_from(symbol.size()).ok()?, home })
            })
            .collect();
        all.sort_by_key(|function| function.begin);
        all
    })
}

/// The crate in the name of a function: `a` in `a::b` and in `<a::B as c::D>::e`.
fn home(name: &str) -> String {
    let name = name.trim_start_matches(['<', '&', '*', '(', '[']).trim_start_matches("mut ").trim_start_matches("dyn ");
    name.chars().take_while(|&letter| letter.is_alphanumeric() || letter == '_').collect()
}

/// The crate of the code at an address to which a call returns.
fn home_of(address: usize) -> Option<&'static str> {
    let functions = functions();
    let call = address.wrapping_sub(1);
    let after = functions.partition_point(|function| function.begin <= call);
    let function = functions[..after].last().filter(|function| call < function.end)?;
    Some(&function.home)
}

impl State {
    /// Goes up the stack, from frame to frame of code of drivers, until `look` has seen enough.
    fn walk(&self, mut look: impl FnMut(usize, &str) -> bool) {
        let images = lock(&self.images);
        if images.is_empty() {
            return;
        }
        backtrace::trace(|frame| {
            let address = frame.ip().addr();
            home_of(address).and_then(|home| images.get(home)).is_none_or(|driver| look(address, driver))
        });
    }

    /// The driver whose code calls the kernel.
    pub fn calling_driver(&self) -> DriverId {
        let mut found = None;
        self.walk(|_, driver| {
            found = Some(driver.to_owned());
            false
        });
        let loaded = found.and_then(|name| {
            let pnp = lock(&self.pnp);
            pnp.drivers.iter().find(|(_, driver)| driver.name == name).map(|(&id, _)| id)
        });
        loaded.unwrap_or_else(context::caller)
    }

    /// A number for the place in the drivers' code from which the kernel is called.
    pub fn call_site(&self) -> u64 {
        let (mut site, mut depth) = (0xCBF2_9CE4_8422_2325_u64, 0);
        self.walk(|address, _| {
            site = (site ^ address as u64).wrapping_mul(0x0100_0000_01B3);
            depth += 1;
            depth < DEPTH
        });
        site
    }
}

impl Kernel {
    /// Says of which crates a driver's image is made, for drivers that call each other by interfaces. Crates that several
    /// drivers have in common are none of them.
    pub fn image(&self, driver: &str, crates: &[&str]) {
        let mut images = lock(&self.state.images);
        images.extend(crates.iter().map(|&home| (home.to_owned(), driver.to_owned())));
    }
}
