//! Gives the macro `call_unsafe_wdf_function_binding!` the place of `types.rs`, which `wdk-macros` wants as a literal.

use std::{env, error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let types = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("src/types.rs");
    let types = types.display();
    fs::write(
        Path::new(&env::var("OUT_DIR")?).join("call_unsafe_wdf_function_binding.rs"),
        format!(
            r#"
/// Calls a function of the framework's table by its name in C, without the first argument `DriverGlobals`.
#[macro_export]
macro_rules! call_unsafe_wdf_function_binding {{
    ($($tokens:tt)*) => {{
        $crate::__proc_macros::call_unsafe_wdf_function_binding!(r"{types}", $($tokens)*)
    }};
}}
"#
        ),
    )?;
    println!("cargo::rerun-if-changed=src/types.rs");
    Ok(())
}
