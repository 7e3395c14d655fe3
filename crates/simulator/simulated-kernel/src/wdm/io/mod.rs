//! Plain WDM: device objects, IRPs and their cancellation, work items, remove locks.

mod ask;
pub mod attach;
mod block;
pub mod cancel;
mod completion;
mod csq;
mod delete;
pub mod device;
pub mod device_queue;
pub mod error_log;
pub mod extension;
pub mod file;
pub mod interface;
pub mod irp;
pub mod open;
mod own;
pub mod plug;
pub mod power;
pub mod property;
mod remove_lock;
pub mod request;
mod secure;
mod shutdown;
pub mod start_io;
pub mod timer;
mod unload;
pub mod work_item;
