//! Objects by handle: an index and a generation, and a kind.

use core::{ffi::c_void, marker::PhantomData, ptr::NonNull};

use engine::slab::Slab;
use nd2::abi::{
    IND2AdapterVtbl, IND2CompletionQueueVtbl, IND2ConnectorVtbl, IND2ListenerVtbl, IND2MemoryRegionVtbl,
    IND2MemoryWindowVtbl, IND2QueuePairVtbl, IND2SharedReceiveQueueVtbl, IUnknownVtbl, SoftQueuePairVtbl, Table,
};
use ndkpi::NtStatus;

/// What an object is, in the order in which a session that ends releases them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Listener,
    Connector,
    QueuePair,
    MemoryWindow,
    SharedReceiveQueue,
    MemoryRegion,
    CompletionQueue,
    Adapter,
}

impl Kind {
    pub const ALL: [Self; 8] = [
        Self::Listener,
        Self::Connector,
        Self::QueuePair,
        Self::MemoryWindow,
        Self::SharedReceiveQueue,
        Self::MemoryRegion,
        Self::CompletionQueue,
        Self::Adapter,
    ];
}

/// A table whose objects have handles.
pub trait Interface: Table {
    /// What its objects are.
    const KIND: Kind;
}

macro_rules! interfaces {
    ($($table:ident: $kind:ident),+ $(,)?) => {
        $(impl Interface for $table {
            const KIND: Kind = Kind::$kind;
        })+
    };
}

interfaces! {
    IND2AdapterVtbl: Adapter,
    IND2CompletionQueueVtbl: CompletionQueue,
    IND2SharedReceiveQueueVtbl: SharedReceiveQueue,
    IND2MemoryRegionVtbl: MemoryRegion,
    IND2MemoryWindowVtbl: MemoryWindow,
    IND2QueuePairVtbl: QueuePair,
    SoftQueuePairVtbl: QueuePair,
    IND2ConnectorVtbl: Connector,
    IND2ListenerVtbl: Listener,
}

/// A reference to a COM object.
///
/// # Invariants
///
/// The pointer is an object's, of which one reference belongs to this value.
pub struct Com(NonNull<c_void>);

// SAFETY: the objects of `nd2` may be used by any thread.
unsafe impl Send for Com {}
// SAFETY: as for `Send`.
unsafe impl Sync for Com {}

impl Com {
    /// Takes a reference over. `None` if the pointer is null.
    ///
    /// # Safety
    ///
    /// The pointer is null or that of an object of `nd2`, and one reference is the caller's to give.
    pub const unsafe fn new(object: *mut c_void) -> Option<Self> {
        match NonNull::new(object) {
            Some(object) => Some(Self(object)),
            None => None,
        }
    }

    pub const fn as_ptr(&self) -> *mut c_void {
        self.0.as_ptr()
    }

    fn unknown(&self) -> &'static IUnknownVtbl {
        // SAFETY: a COM object begins with a pointer to its table (invariant).
        let table = unsafe { self.0.cast::<*const IUnknownVtbl>().read() };
        // SAFETY: the tables of `nd2` are constants.
        unsafe { &*table }
    }
}

impl Clone for Com {
    fn clone(&self) -> Self {
        // SAFETY: the object is held (invariant).
        unsafe { (self.unknown().AddRef)(self.as_ptr()) };
        Self(self.0)
    }
}

impl Drop for Com {
    fn drop(&mut self) {
        // SAFETY: the reference is this value's (invariant), and given back once.
        unsafe { (self.unknown().Release)(self.as_ptr()) };
    }
}

/// An object with the table `T`.
///
/// # Invariants
///
/// The object was made as one of the kind that `T` is for, so its table is a `T`.
pub struct Object<T: Interface>(Com, PhantomData<fn() -> T>);

impl<T: Interface> Object<T> {
    pub const fn as_ptr(&self) -> *mut c_void {
        self.0.as_ptr()
    }

    pub fn table(&self) -> &'static T {
        // SAFETY: a COM object begins with a pointer to its table.
        let table = unsafe { self.0.0.cast::<*const T>().read() };
        // SAFETY: it is a `T` (invariant), and the tables of `nd2` are constants.
        unsafe { &*table }
    }
}

struct Entry {
    kind: Kind,
    generation: u32,
    object: Com,
}

/// The objects of a session.
#[derive(Default)]
pub struct Handles {
    entries: Slab<Entry>,
    generation: u32,
}

/// A handle in its parts. No handle is zero.
fn parts(handle: u64) -> Option<(usize, u32)> {
    let index = (handle & u64::from(u32::MAX)).checked_sub(1)?;
    Some((usize::try_from(index).ok()?, u32::try_from(handle >> 32).ok()?))
}

impl Handles {
    /// Gives an object a handle.
    ///
    /// # Errors
    ///
    /// `STATUS_INSUFFICIENT_RESOURCES`. The object is given back, to be dropped when no lock is held.
    pub fn insert(&mut self, kind: Kind, object: Com) -> Result<u64, (NtStatus, Com)> {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        // What does not fit is dropped by the slab: a second reference keeps the object until no lock is held.
        let kept = object.clone();
        match self.entries.try_insert(Entry { kind, generation, object }).map_err(Into::into) {
            Ok(index) => {
                // Not the last reference.
                drop(kept);
                Ok(u64::from(generation) << 32 | (index as u64 + 1))
            }
            Err(status) => Err((status, kept)),
        }
    }

    /// Bytes that the table takes. It does not shrink, and grows to twice its size.
    pub fn bytes(&self) -> u64 {
        2 * (self.entries.bound() * size_of::<Entry>()) as u64
    }

    /// The object with a handle, whatever it is.
    pub fn any(&self, handle: u64) -> Option<(Kind, Com)> {
        let (index, generation) = parts(handle)?;
        let entry = self.entries.get(index).filter(|entry| entry.generation == generation)?;
        Some((entry.kind, entry.object.clone()))
    }

    /// The object with a handle, if it has the table `T`.
    pub fn get<T: Interface>(&self, handle: u64) -> Option<Object<T>> {
        let (kind, object) = self.any(handle)?;
        // The object that is not wanted has other references: that of the table.
        (kind == T::KIND).then_some(Object(object, PhantomData))
    }

    /// Takes an object out, to be dropped when no lock is held.
    pub fn remove(&mut self, handle: u64) -> Option<Com> {
        let (index, generation) = parts(handle)?;
        self.entries.get(index).filter(|entry| entry.generation == generation)?;
        self.entries.remove(index).map(|entry| entry.object)
    }

    /// Takes out any object of a kind, to be dropped when no lock is held. Looks from place `from` on, and sets it to the place
    /// behind.
    pub fn remove_one(&mut self, kind: Kind, from: &mut usize) -> Option<Com> {
        while *from < self.entries.bound() {
            let index = *from;
            *from += 1;
            if self.entries.get(index).is_some_and(|entry| entry.kind == kind) {
                return self.entries.remove(index).map(|entry| entry.object);
            }
        }
        None
    }
}
