    // Compiled as a part of `fallible` in the copy of the tree, never here. `MUTANT` is the number of the mutant that is on, and `REACHED` the
    // name of a file with a byte for each, which becomes 1 when the mutant is asked for.
    use core::{
        ffi::{c_char, c_int, c_void},
        ptr::null_mut,
        sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed},
    };

    static CHOSEN: AtomicU32 = AtomicU32::new(0);
    static REACHED: AtomicPtr<u8> = AtomicPtr::new(null_mut());

    /// Returns true if the mutant of that number is on. The compiler, which computes constants, has none on.
    #[inline]
    #[must_use]
    pub const fn on(number: u32) -> bool {
        core::intrinsics::const_eval_select((number,), never, ask)
    }

    const fn never(_: u32) -> bool {
        false
    }

    #[inline]
    fn ask(number: u32) -> bool {
        let reached = REACHED.load(Relaxed);
        if !reached.is_null() {
            unsafe { reached.add(number as usize).write(1) };
        }
        CHOSEN.load(Relaxed) == number
    }

    unsafe extern "C" {
        fn getenv(name: *const c_char) -> *const c_char;
        fn atoi(text: *const c_char) -> c_int;
        fn open(name: *const c_char, flags: c_int) -> c_int;
        fn lseek(file: c_int, offset: i64, whence: c_int) -> i64;
        fn mmap(at: *mut c_void, length: usize, protection: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void;
        fn close(file: c_int) -> c_int;
    }

    /// Before `main`.
    extern "C" fn choose() {
        unsafe {
            let mutant = getenv(c"MUTANT".as_ptr());
            if !mutant.is_null() {
                CHOSEN.store(atoi(mutant) as u32, Relaxed);
            }
            let reached = getenv(c"REACHED".as_ptr());
            if !reached.is_null() {
                let file = open(reached, 2);
                let length = lseek(file, 0, 2);
                let map = mmap(null_mut(), length as usize, 3, 1, file, 0);
                assert!(map as isize != -1, "the file of what is reached can be mapped");
                close(file);
                REACHED.store(map.cast(), Relaxed);
            }
        }
    }

    #[used]
    #[unsafe(link_section = ".init_array")]
    static CHOOSE: extern "C" fn() = choose;
