//! Macros for what the modules have in common: layouts, open enumerations, objects and slots of later versions.

/// Asserts at compile time the size, the alignment and the offset of every field of a structure. The numbers are those of 64 bits.
///
/// The field list is also used as a pattern without `..`, so a field that is not listed does not compile.
#[doc(hidden)]
#[macro_export]
macro_rules! layout {
    ($type:ident: size $size:literal, align $align:literal, { $($field:ident @ $offset:literal),+ $(,)? }) => {
        #[cfg(target_pointer_width = "64")]
        const _: () = {
            assert!(size_of::<$type>() == $size, concat!("size of ", stringify!($type)));
            assert!(align_of::<$type>() == $align, concat!("alignment of ", stringify!($type)));
            $(assert!(
                core::mem::offset_of!($type, $field) == $offset,
                concat!("offset of ", stringify!($type), "::", stringify!($field))
            );)+
        };
        const _: fn(&$type) = |value| {
            let $type { $($field: _),+ } = value;
        };
    };
}

/// Asserts at compile time that a dispatch table has exactly these slots in this order (NDKPI 4).
macro_rules! slots {
    ($table:ident: $($slot:ident),+ $(,)?) => {
        const _: () = {
            const POINTER: usize = size_of::<usize>();
            let slots = [$(core::mem::offset_of!($table, $slot)),+];
            assert!(size_of::<$table>() == POINTER * slots.len(), concat!("size of ", stringify!($table)));
            assert!(align_of::<$table>() == POINTER, concat!("alignment of ", stringify!($table)));
            let mut index = 0;
            while index < slots.len() {
                assert!(slots[index] == POINTER * index, concat!("order of the slots of ", stringify!($table)));
                index += 1;
            }
        };
    };
}

/// Defines a C enumeration as the integer it is on the wire, with a constant and a name for each enumerator.
#[doc(hidden)]
#[macro_export]
macro_rules! open_enum {
    ($(#[$doc:meta])+ $type:ident { $($(#[$item_doc:meta])+ $item:ident = $value:literal, $name:literal;)+ }) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $type(pub i32);

        impl $type {
            $($(#[$item_doc])+ #[doc(alias = $name)] pub const $item: Self = Self($value);)+

            /// Every value that has a name.
            pub const NAMED: &'static [Self] = &[$(Self::$item),+];

            /// The name of the value in C, or `None` for a value this crate does not know.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$item => Some($name),)+
                    _ => None,
                }
            }
        }

        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, concat!(stringify!($type), "({})"), self.0),
                }
            }
        }

        const _: () = assert!(size_of::<$type>() == 4 && align_of::<$type>() == 4);
    };
}

/// Defines `HEADER`, the header of an NDIS structure: its kind, its revision and the bytes of that revision.
#[doc(hidden)]
#[macro_export]
macro_rules! header {
    ($type:ident: $kind:expr, $revision:expr, $size:expr) => {
        impl $type {
            /// The header of the structure.
            pub const HEADER: $crate::NDIS_OBJECT_HEADER = $crate::NDIS_OBJECT_HEADER::new($kind, $revision, $size);
        }
    };
}

/// Defines one of the ten object structures, all of the same shape (NDKPI 3.4).
macro_rules! object {
    ($(#[$doc:meta])+ $object:ident, $dispatch:ident, $kind:ident) => {
        $(#[$doc])+
        #[derive(Debug)]
        #[repr(C)]
        pub struct $object {
            /// The header that every object begins with.
            pub Header: NDK_OBJECT_HEADER,
            /// The functions of the object. The provider sets it before it hands the object out and never reads it
            /// again (NDKPI 7.10).
            pub Dispatch: *const $dispatch,
        }

        layout!($object: size 0x30, align 8, { Header @ 0x00, Dispatch @ 0x28 });

        impl $object {
            /// The structure as a provider hands it out: its version, its type, a zeroed reserved block and the table.
            #[must_use]
            pub const fn new(version: NDK_VERSION, dispatch: *const $dispatch) -> Self {
                Self { Header: NDK_OBJECT_HEADER::new(version, NDK_OBJECT_TYPE::$kind), Dispatch: dispatch }
            }
        }

        // SAFETY: `layout!` has checked that the header is at offset 0, and `new` writes the type.
        unsafe impl Object for $object {
            type Dispatch = $dispatch;
            const OBJECT_TYPE: NDK_OBJECT_TYPE = NDK_OBJECT_TYPE::$kind;
        }
    };
}

/// Defines the accessor of a slot that a minor version added, which looks at the object's version first (NDKPI 1).
macro_rules! slot_since {
    ($version:ident, $(#[$doc:meta])+ $object:ident::$name:ident reads $slot:ident: $function:ident) => {
        impl $object {
            $(#[$doc])+
            ///
            /// # Safety
            ///
            /// `this` must point to an object that its provider handed out and that is not closed. Its dispatch table
            /// need only be as long as its version says.
            #[must_use]
            pub unsafe fn $name(this: *const Self) -> Option<$function> {
                // SAFETY: the caller gives a live object, and the header is the same in every version.
                let version = unsafe { (*this).Header.Version };
                if version < NDK_VERSION::$version {
                    return None;
                }
                // SAFETY: a table of this version has the slot. Only the slot is read; no reference to the table is made, which
                // may be longer or shorter than the type says.
                unsafe { (*(*this).Dispatch).$slot }
            }
        }
    };
}

/// Defines a type that this interface only points to.
#[doc(hidden)]
#[macro_export]
macro_rules! opaque {
    ($(#[$doc:meta])+ $type:ident) => {
        $(#[$doc])+
        #[repr(C)]
        pub struct $type {
            opaque: [u8; 0],
            marker: core::marker::PhantomData<(*mut u8, core::marker::PhantomPinned)>,
        }

        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($type)).finish_non_exhaustive()
            }
        }
    };
}
