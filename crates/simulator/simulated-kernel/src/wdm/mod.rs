//! The routines of the kernel, as the symbols that `wdk-bindings` declares.

#![allow(non_snake_case, reason = "names of the C headers")]

mod addresses;
#[cfg(unix)]
mod backtrace;
pub mod bug_check_callbacks;
pub mod callback;
pub mod clock;
pub mod device_keys;
pub mod dpc;
pub mod event;
pub mod ex_timer;
mod exception;
mod fast_mutex;
mod file_data;
pub mod files;
pub mod generic_table;
pub mod handles;
pub mod io;
pub mod io_space;
mod list;
pub mod lock;
mod lookaside;
pub mod mdl;
pub mod memory;
mod misc;
mod mutex;
pub mod notification;
mod object;
mod partial_mdl;
mod pool_variants;
mod probe;
pub mod process;
mod processor;
mod push_lock;
pub mod registry;
pub mod registry_keys;
mod registry_values;
mod resource;
pub mod rundown;
mod security;
pub mod shared_lock;
mod strings;
pub mod system_callbacks;
pub mod system_thread;
pub mod thread;
mod thread_end;
pub mod timeout;
pub mod timer;
pub mod trace;
mod trace_fields;
mod turns;
mod uuid;
pub mod version;
mod volume;
pub mod wmi;
mod wpp;
