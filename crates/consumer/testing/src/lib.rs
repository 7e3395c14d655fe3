//! What tests of several crates need: completion queues and queue pairs on a machine of the host, with everything that their
//! consumers see written down; an allocator that counts and fails; tests in processes of their own; what was decided where NDKPI is
//! silent; the commands that the documents show.

pub mod allocation;
pub mod alone;
pub mod arms;
pub mod cq_fixture;
pub mod decisions;
pub mod documents;
pub mod done;
pub mod driver_image;
pub mod on_event;
pub mod posters;
pub mod qp_fixture;
pub mod share;
