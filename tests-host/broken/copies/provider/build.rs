//! Weaves the mistakes into the provider.

fn main() -> std::io::Result<()> {
    broken::copy::package("provider", "engine::switch::on")
}
