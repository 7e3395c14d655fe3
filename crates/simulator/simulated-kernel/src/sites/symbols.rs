//! Whose code is on the stack, by the symbols of this program: the drivers are linked into it.

use std::sync::{Arc, OnceLock};

use litemap::LiteMap;
use object::{Object as _, ObjectSymbol as _, SymbolKind};

unsafe extern "C" {
    /// A routine of this crate, of which only the address is of interest: what the symbols say is relative to that. Declared as a function:
    /// as a static it gets another name where it comes into one unit with its definition, and does not link.
    fn KeInitializeDpc();
}

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
        let loaded = (KeInitializeDpc as *const ()).addr() as u64;
        let text = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
        let mut all: Vec<Function> = text
            .filter_map(|symbol| {
                let begin = usize::try_from(symbol.address().wrapping_sub(anchor).wrapping_add(loaded)).ok()?;
                let name = symbol.name().ok()?;
                // What is not mangled has no crate in its name: the routines, and C.
                let plain = || format!("{PLAIN}{name}");
                let demangled = rustc_demangle::try_demangle(name);
                let home = demangled.map_or_else(|_| plain(), |demangled| home(&format!("{demangled:#}")));
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

/// What the home of a function begins with whose name is not mangled, so that it is no crate's.
const PLAIN: &str = "fn ";

/// Crates whose code runs between a driver's call and the place that asks who called.
const KERNEL: [&str; 6] = ["alloc", "backtrace", "core", "host", "simulated_kernel", "std"];

/// Returns true if the code at an address, to which a call returns, is the kernel's, which is in this routine; `None` if nobody knows
/// whose it is.
fn is_kernels(address: usize, routine: &str) -> Option<bool> {
    let home = home_of(address)?;
    let plain = home.strip_prefix(PLAIN);
    Some(KERNEL.contains(&home) || plain.is_some_and(|name| name == routine || name == "__rust_try"))
}

/// The stack pointer of the code that calls this routine of the kernel; `None` if the stack does not tell.
pub fn stack_of_caller(routine: &str) -> Option<usize> {
    let mut found = None;
    backtrace::trace(|frame| {
        let is_kernels = is_kernels(frame.ip().addr(), routine);
        if is_kernels == Some(false) {
            found = Some(frame.sp().addr()).filter(|&stack| stack != 0);
        }
        is_kernels == Some(true)
    });
    found
}

/// Where the functions return to that have led to a call of the kernel. Whose they are is found out when somebody wants to know.
#[derive(Clone)]
pub struct Frames {
    addresses: Arc<[usize]>,
    routine: &'static str,
}

impl Frames {
    /// As many frames are the kernel's own at most, and one more.
    const DEPTH: usize = 32;

    /// Those of the current thread, which is in this routine.
    pub fn here(routine: &'static str) -> Self {
        let mut addresses = Vec::with_capacity(Self::DEPTH);
        backtrace::trace(|frame| {
            addresses.push(frame.ip().addr());
            addresses.len() < Self::DEPTH
        });
        Self { addresses: addresses.into(), routine }
    }

    /// The function that called the kernel, and its place in the sources.
    pub fn in_words(&self) -> Option<String> {
        let caller = self.addresses.iter().find(|&&address| is_kernels(address, self.routine) != Some(true))?;
        let call = std::ptr::without_provenance_mut(caller.wrapping_sub(1));
        let mut words = None;
        // Of functions that became a part of another one, the innermost comes first.
        backtrace::resolve(call, |symbol| {
            if words.is_none()
                && let Some(name) = symbol.name()
            {
                let file =
                    symbol.filename().and_then(|file| file.file_name()).map(|file| file.to_string_lossy().into_owned());
                let line =
                    file.zip(symbol.lineno()).map_or_else(String::new, |(file, line)| format!(" ({file}:{line})"));
                words = Some(format!("{name:#}{line}"));
            }
        });
        words
    }
}

/// Where the functions return to that have led to a call of this routine: all but the innermost `skip`, `count` at most.
pub fn frames_of_caller(routine: &str, skip: usize, count: usize) -> Vec<usize> {
    let (mut is_outside, mut left, mut frames) = (false, skip, Vec::new());
    backtrace::trace(|frame| {
        let address = frame.ip().addr();
        if !is_outside {
            is_outside = home_of(address).and_then(|home| home.strip_prefix(PLAIN)) == Some(routine);
        } else if left > 0 {
            left -= 1;
        } else if frames.len() < count {
            frames.push(address);
        }
        frames.len() < count
    });
    frames
}

/// The crate of the code at an address to which a call returns.
fn home_of(address: usize) -> Option<&'static str> {
    let functions = functions();
    let call = address.wrapping_sub(1);
    let after = functions.partition_point(|function| function.begin <= call);
    let function = functions[..after].last().filter(|function| call < function.end)?;
    Some(&function.home)
}

/// Goes up the stack, with the drivers by the crates that their images are made of, from frame to frame of code of drivers, until `look` has seen enough.
pub fn walk(images: &LiteMap<String, String>, mut look: impl FnMut(usize, &str) -> bool) {
    if images.is_empty() {
        return;
    }
    backtrace::trace(|frame| {
        let address = frame.ip().addr();
        home_of(address).and_then(|home| images.get(home)).is_none_or(|driver| look(address, driver))
    });
}
