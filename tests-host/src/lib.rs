//! What several tests need: completion queues and queue pairs on a machine of the host, with everything that their consumers
//! see written down.

pub mod allocation;
pub mod alone;
pub mod arms;
pub mod cq_fixture;
pub mod decisions;
pub mod on_event;
pub mod posters;
pub mod qp_fixture;
