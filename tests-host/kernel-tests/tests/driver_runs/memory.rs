//! What the provider driver takes from the pool for each object: what `ndkctl info --memory` says, counted.

use std::{
    ffi::c_void,
    fs,
    path::PathBuf,
    ptr,
    sync::atomic::{AtomicIsize, Ordering::SeqCst},
};

use conformance::platform::Platform;
use engine::{
    cq::Cqe,
    memory::PAGE_SIZE,
    qp::{QpParameters, Sge},
};
use ndkpi::{NDK_ADAPTER, NDK_CQ, NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_PD, NDK_QP, NDK_SRQ, NDK_VERSION, NtStatus};
use serde_json::{Value, json};
use simulated_kernel::{Kernel, Value as RegistryValue};

use crate::{consumer::InKernel, world::Provider};

/// Closes whose callbacks are to come.
static CLOSING: AtomicIsize = AtomicIsize::new(0);

unsafe extern "system" fn created(_: *mut c_void, _: NtStatus, _: *mut NDK_OBJECT_HEADER) {}
unsafe extern "system" fn requested(_: *mut c_void, _: NtStatus) {}
unsafe extern "system" fn closed(_: *mut c_void) {
    CLOSING.fetch_sub(1, SeqCst);
}
unsafe extern "system" fn notified(_: *mut c_void, _: NtStatus) {}

/// The table of an object.
macro_rules! table {
    ($object:expr) => {{
        // SAFETY: the object is open.
        let table = unsafe { (*$object).Dispatch };
        // SAFETY: the provider's tables live as long as the program.
        unsafe { &*table }
    }};
}

/// Calls a function that makes an object in its last argument.
macro_rules! create {
    ($parent:expr, $function:ident, $kind:ty $(, $argument:expr)*) => {{
        let (function, mut object): (_, *mut $kind) = (table!($parent).$function.expect("a full table"), ptr::null_mut());
        // SAFETY: the parent and the arguments are open, the place is valid.
        let status = unsafe { function($parent $(, $argument)*, Some(created), ptr::null_mut(), &raw mut object) };
        assert_eq!(status, NtStatus::SUCCESS);
        object
    }};
}

/// The sizes of a queue pair.
#[derive(Clone, Copy)]
struct Sizes {
    depth: u32,
    elements: u32,
    inline: u32,
}

/// Objects and what they cost.
struct Measure<'k> {
    kernel: &'k Kernel,
    adapter: *mut NDK_ADAPTER,
    pd: *mut NDK_PD,
    cq: *mut NDK_CQ,
    figures: Vec<Value>,
}

impl Measure<'_> {
    /// Makes `count` objects and notes what the pool has given for one.
    fn of<T>(&mut self, names: (&str, String), entries: usize, count: usize, make: impl Fn(&Self) -> *mut T) {
        // The first makes room for others in the lists it is in.
        let first = make(self);
        let mut all = Vec::with_capacity(count);
        let before = self.kernel.pool_bytes();
        all.extend((0..count).map(|_| make(self)));
        let bytes = (self.kernel.pool_bytes() - before).div_ceil(count);
        all.push(first);
        all.into_iter().for_each(close);
        self.settle();
        let (object, parameters) = names;
        self.figures.push(json!({ "object": object, "parameters": parameters, "entries": entries, "bytes": bytes }));
    }

    /// Waits until what was closed has given its memory back, which is after its callback.
    fn settle(&self) {
        self.kernel.wait_until(|| CLOSING.load(SeqCst) == 0);
        let mut last = usize::MAX;
        while self.kernel.pool_bytes() != last {
            last = self.kernel.pool_bytes();
            self.kernel.sleep(20_000);
        }
    }

    fn all(&mut self) {
        for (depth, count) in [(16, 256), (256, 256), (1 << 20, 2)] {
            let entries = depth as usize * size_of::<Cqe>();
            self.of(("completion queue", format!("depth {depth}")), entries, count, |on| on.cq(depth));
        }
        for (sizes, count) in [
            (Sizes { depth: 16, elements: 1, inline: 0 }, 256),
            (Sizes { depth: 128, elements: 4, inline: 0 }, 256),
            (Sizes { depth: 16 << 10, elements: 16, inline: 256 }, 2),
            (Sizes { depth: 16 << 10, elements: 16, inline: 1024 }, 2),
        ] {
            let Sizes { depth, elements, inline } = sizes;
            let parameters = format!("depth {depth} of both queues, elements {elements}, inline {inline}");
            self.of(("queue pair", parameters), entries(sizes, true), count, |on| on.qp(sizes));
        }
        for (depth, elements, count) in [(128, 4, 256), (16 << 10, 16, 2)] {
            let sizes = Sizes { depth, elements, inline: 0 };
            let parameters = format!("depth {depth}, elements {elements}");
            let make = |on: &Self| on.srq(sizes);
            self.of(("shared receive queue", parameters), entries(sizes, false), count, make);
        }
        // With their shares of the table of tokens, which grows with them.
        for pages in [16, 512] {
            let parameters = format!("for fast registration, pages {pages}");
            let (page, make) = (usize::try_from(PAGE_SIZE).expect("small") / 512, |on: &Self| on.fast(pages));
            self.of(("memory region", parameters), pages as usize * page, 1024, make);
        }
        let normal = |on: &Self| create!(on.pd, NdkCreateMr, NDK_MR, 0);
        self.of(("memory region", "not registered".to_owned()), 0, 1024, normal);
        self.of(("memory window", "not bound".to_owned()), 0, 1024, |on| create!(on.pd, NdkCreateMw, NDK_MW));
        self.of(("protection domain", String::new()), 0, 1024, |on| create!(on.adapter, NdkCreatePd, NDK_PD));
    }

    fn cq(&self, depth: u32) -> *mut NDK_CQ {
        create!(self.adapter, NdkCreateCq, NDK_CQ, depth, Some(notified), ptr::null_mut(), ptr::null())
    }

    fn qp(&self, sizes: Sizes) -> *mut NDK_QP {
        let Sizes { depth, elements, inline } = sizes;
        let context = ptr::null_mut();
        create!(self.pd, NdkCreateQp, NDK_QP, self.cq, self.cq, context, depth, depth, elements, elements, inline)
    }

    fn srq(&self, sizes: Sizes) -> *mut NDK_SRQ {
        let Sizes { depth, elements, .. } = sizes;
        let (notify, context) = (Some(notified as _), ptr::null_mut());
        create!(self.pd, NdkCreateSrq, NDK_SRQ, depth, elements, 0, notify, context, ptr::null())
    }

    fn fast(&self, pages: u32) -> *mut NDK_MR {
        let mr = create!(self.pd, NdkCreateMr, NDK_MR, 1);
        let initialize = table!(mr).NdkInitializeFastRegisterMr.expect("a full table");
        // SAFETY: the region is open.
        let status = unsafe { initialize(mr, pages, 1, Some(requested), ptr::null_mut()) };
        assert_eq!(status, NtStatus::SUCCESS);
        mr
    }
}

/// The entries of a queue pair or, if not `initiator`, of a queue of receives.
fn entries(sizes: Sizes, initiator: bool) -> usize {
    let depth = if initiator { sizes.depth } else { 0 };
    let parameters = QpParameters {
        receive_depth: sizes.depth,
        initiator_depth: depth,
        max_receive_sge: sizes.elements,
        max_initiator_sge: sizes.elements,
        max_peer_sge: 0,
        inline_size: sizes.inline,
        max_transfer: 0,
        context: 0,
    };
    assert!(parameters.entry_bytes() >= sizes.depth as usize * sizes.elements as usize * size_of::<Sge>());
    parameters.entry_bytes()
}

/// Closes an object of any kind.
fn close<T>(object: *mut T) {
    let header: *mut NDK_OBJECT_HEADER = object.cast();
    // SAFETY: every object begins with its header and its table, and every table with the function that closes.
    let object: *mut NDK_PD = header.cast();
    let function = table!(object).NdkClosePd.expect("a full table");
    CLOSING.fetch_add(1, SeqCst);
    // SAFETY: the object is open and not used after this.
    let status = unsafe { function(header, Some(closed), ptr::null_mut()) };
    if status == NtStatus::SUCCESS {
        CLOSING.fetch_sub(1, SeqCst);
    } else {
        assert_eq!(status, NtStatus::PENDING);
    }
}

fn measured() -> Vec<Value> {
    let kernel = Kernel::threads().start();
    // What is measured is created in the call.
    let inline = [("CompletionMode", RegistryValue::Number(0))];
    let provider = Provider::load_with(&kernel, &inline).expect("the provider loads");
    let consumer = InKernel::query(&kernel, &provider.device);
    let text = provider.driver.run(|| {
        let adapter = consumer.open(0, NDK_VERSION::V2_1).expect("an adapter");
        let pd = create!(adapter, NdkCreatePd, NDK_PD);
        let mut measure =
            Measure { kernel: &kernel, adapter, pd, cq: ptr::null_mut(), figures: Vec::with_capacity(64) };
        measure.cq = measure.cq(16);
        measure.all();
        close(measure.cq);
        close(pd);
        measure.settle();
        // SAFETY: the adapter is open, with nothing left of it.
        assert!(unsafe { consumer.close(adapter) });
        serde_json::to_string(&measure.figures).expect("numbers and names")
    });
    let figures: Vec<Value> = serde_json::from_str(&text).expect("what was written");
    // Both lie in the pool.
    provider.driver.run(|| drop((text, consumer)));
    provider.unload();
    figures
}

#[test]
fn objects_take_what_ndkctl_says_and_large_ones_little_more_than_their_entries() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../crates/tools/ndkctl/src/driver_memory.json");
    let measured = measured();
    if std::env::var_os("UPDATE_MEMORY").is_some() {
        let text = serde_json::to_string_pretty(&measured).expect("numbers and names");
        fs::write(&path, text + "\n").expect("the file of ndkctl");
    }
    let said: Vec<Value> = serde_json::from_str(&fs::read_to_string(&path).expect("the file")).expect("a table");
    assert_eq!(measured.len(), said.len(), "UPDATE_MEMORY=1 writes the table anew");
    for (measured, said) in measured.iter().zip(&said) {
        println!("{measured}");
        for name in ["object", "parameters", "entries"] {
            assert_eq!(measured[name], said[name], "{said}");
        }
        let number = |figure: &Value, name: &str| figure[name].as_u64().expect("a number");
        let (bytes, entries) = (number(measured, "bytes"), number(measured, "entries"));
        // A field more or less is no reason to write it anew.
        let apart = bytes.abs_diff(number(said, "bytes"));
        assert!(apart <= 64 + bytes / 100, "{measured}, {said}: UPDATE_MEMORY=1 writes the table anew");
        if entries >= 4096 {
            assert!(bytes * 2 <= entries * 3, "more than half as much again as the entries: {measured}");
        }
    }
}
