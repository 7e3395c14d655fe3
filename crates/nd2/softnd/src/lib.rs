//! `softnd.dll`: the NetworkDirect service provider interface for programs.
//!
//! ```text
//! DllGetClassObject -> version 2: IND2Provider
//!                        in the process   nd2 over the engine, on a machine of threads
//!                        in the driver    driver: a control code for each method
//!                      version 1: a class factory whose objects call those of version 2, wherever they are
//! ```
//!
//! Where the driver has its device, the adapters are the driver's, and so are their peers: other processes, and kernel consumers.
//! Everywhere else the library makes an adapter of its own ([`choice`]), which is as the file that `SOFTND_CONFIG` names and
//! environment variables say ([`settings`]). Programs find the library in the Winsock catalogue ([`catalogue`]).
//!
//! The exports and what they need of Windows are in `windows`. On other systems the rest is there for tools and tests.

pub mod catalogue;
pub mod choice;
pub mod driver;
pub mod settings;
pub mod version1;
#[cfg(windows)]
mod windows;
