//! `ndkctl run --imports`: what driver images import and call of the framework, and what of it the simulated kernel has.

use std::{fs, path::Path};

use console::style;
use host::{note, say};
use image_loader::{
    Framework, Image, Import, Name, framework,
    routines::{self, Found},
};
use serde::Serialize;

use super::Run;
use crate::{
    End,
    output::{print_json, print_table, table},
};

/// An image, as JSON shows it.
#[derive(Serialize)]
struct Shown {
    image: String,
    missing: usize,
    imports: Vec<Row>,
    /// Places where the table of the framework's functions is read and it is not seen which function is wanted.
    unclear: Vec<u32>,
    /// It binds to the framework with a structure that it makes as it runs: what it calls of it is not in the list.
    unlisted: bool,
}

/// An import, or a function of the framework.
#[derive(Serialize)]
struct Row {
    module: String,
    name: String,
    delayed: bool,
    found: &'static str,
}

/// Lists the imports.
pub fn list(args: &Run) -> Result<End, String> {
    let mut images = Vec::new();
    for path in &args.images {
        let name = path.display();
        let bytes = fs::read(path).map_err(|error| format!("{name}: {error}"))?;
        let image = Image::parse(&bytes).map_err(|error| format!("{name}: {error}"))?;
        images.push((path.as_path(), image));
    }
    let shown: Vec<Shown> = images.iter().map(|(path, image)| of(path, image, &images)).collect();
    if args.json {
        print_json(&shown)?;
    } else {
        for image in &shown {
            show(image);
        }
    }
    let complete = shown.iter().all(|image| image.missing == 0);
    Ok(if complete { End::Good } else { End::Bad })
}

const MISSING: &str = "missing";

/// What an image imports, with the images beside it that may have it.
fn of(path: &Path, image: &Image, all: &[(&Path, Image)]) -> Shown {
    let framework = image.framework();
    let called = framework.iter().flat_map(|framework| framework.called.keys().map(|&index| called(framework, index)));
    let imports: Vec<Row> = image.imports.iter().map(|import| row(import, all)).chain(called).collect();
    let missing = imports.iter().filter(|row| row.found == MISSING).count();
    let unclear = framework.iter().flat_map(|framework| framework.unclear.iter().copied()).collect();
    let binds = image.imports.iter().any(|import| matches!(&import.name, Name::Name(name) if name == "WdfVersionBind"));
    let unlisted = binds && framework.is_none();
    Shown { image: path.display().to_string(), missing, imports, unclear, unlisted }
}

/// A function of the framework. The image calls it by its index, in the table of the version that it was built for.
fn called(framework: &Framework, index: u32) -> Row {
    let (name, found) = framework::find(index)
        .map_or_else(|| (format!("#{index}"), false), |(name, simulated)| (name.to_owned(), simulated));
    let (major, minor) = framework.version;
    let found = if found { "simulated" } else { MISSING };
    Row { module: format!("KMDF {major}.{minor}"), name, delayed: false, found }
}

fn row(import: &Import, all: &[(&Path, Image)]) -> Row {
    let exports = |(path, image): &(&Path, Image)| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        routines::same_module(&file, &import.module) && image.export(&import.name).is_some()
    };
    let found = match &import.name {
        Name::Name(name) => routines::find(&import.module, name),
        // No module of the kernel is documented to have numbers.
        Name::Ordinal(_) => None,
    };
    let found = match found {
        Some(Found::Simulated) => "simulated",
        Some(Found::Library(_)) => "plain function",
        Some(Found::Variable) => "variable",
        None if all.iter().any(exports) => "another image",
        None => MISSING,
    };
    Row { module: import.module.clone(), name: import.name.to_string(), delayed: import.delayed, found }
}

fn show(image: &Shown) {
    let mut shown = table(&["import", "module", "found"]);
    for row in &image.imports {
        let found = if row.found == MISSING { style(MISSING).red().to_string() } else { row.found.to_owned() };
        shown.add_row([&row.name, &row.module, &found]);
    }
    print_table(&shown);
    say!("{}: {} imports, {} missing", image.image, image.imports.len(), image.missing);
    if image.missing > 0 {
        note!("an image loads without them, and a run ends where one of them is called (docs/simulated-kernel.md)");
    }
    if image.unlisted {
        note!(
            "binds to KMDF with a structure that it makes as it runs: which of its functions it calls is not seen here"
        );
    }
    if !image.unclear.is_empty() {
        let places: Vec<String> = image.unclear.iter().map(|place| format!("+{place:#x}")).collect();
        note!("calls functions of the framework that are not seen here, at {}", places.join(", "));
    }
}
