//! Weaves the mistakes into the engine.

fn main() -> std::io::Result<()> {
    broken::copy::package("engine", "crate::switch::on")
}
