//! The script of a run: from a file, or the usual one; with the images and the registry that the command line names.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf, absolute},
};

use image_loader::Image;
use runner::{Script, parse};

use super::Run;

/// The script, whose images have been checked.
pub fn script(args: &Run) -> Result<Script, String> {
    let mut script = match &args.script {
        None => Script::default_for(&args.images),
        Some(path) => {
            let mut script = parse::read(path)?;
            for image in &args.images {
                put(&mut script, path, image)?;
            }
            script
        }
    };
    if let Some(path) = &args.registry {
        parse::add_registry(&mut script, path)?;
    }
    script.read_files(args.files.as_deref())?;
    // On processors that run at the same time, a DPC runs beside the thread that it has interrupted. No machine does that, and the adviser
    // would take what the thread does for something done in the DPC's callback.
    let is_seeded = args.threads.is_none() && !script.kernel.threads;
    if !args.no_advise && is_seeded {
        script.advise();
    }
    for image in script.all_images_mut() {
        let name = image.file.display().to_string();
        let bytes = fs::read(&image.file).map_err(|error| format!("{name}: {error}"))?;
        Image::parse(&bytes).map_err(|error| format!("{name}: {error}"))?;
        image.file = absolute(&image.file).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(script)
}

/// Puts a file of the command line in the place of the script's: `NAME=FILE`, or a file of the same name.
fn put(script: &mut Script, path: &Path, given: &Path) -> Result<(), String> {
    let text = given.to_string_lossy();
    let names = |script: &Script| {
        let mut names: Vec<_> = script.all_images().map(|image| image.name.as_str()).collect();
        // Machines may have the same.
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(*name));
        names.join(", ")
    };
    let mut found = false;
    if let Some((name, file)) = text.split_once('=') {
        for image in script.all_images_mut().filter(|image| image.name == name) {
            image.file = PathBuf::from(file);
            found = true;
        }
        let problem = || format!("{} has no image `{name}`; it has {}", path.display(), names(script));
        return if found { Ok(()) } else { Err(problem()) };
    }
    for image in script.all_images_mut().filter(|image| image.file.file_name() == given.file_name()) {
        given.clone_into(&mut image.file);
        found = true;
    }
    let problem = || {
        format!(
            "{text}: {} has no image of that file; write NAME={text}, NAME being one of {}",
            path.display(),
            names(script)
        )
    };
    if found { Ok(()) } else { Err(problem()) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use runner::parse;

    use super::put;

    const TEXT: &str = "[[image]]\nname = \"nic\"\nfile = \"softndknic.sys\"\n[[image]]\nname = \"consumer\"\n";

    #[test]
    fn an_image_of_the_command_line_takes_the_place_of_the_scripts() {
        let mut script = parse(TEXT).expect("a script");
        put(&mut script, Path::new("run.toml"), Path::new("a/softndknic.sys")).expect("the name of the file");
        put(&mut script, Path::new("run.toml"), Path::new("consumer=b/wrong.sys")).expect("the name of the image");
        assert_eq!(script.images[0].file, Path::new("a/softndknic.sys"));
        assert_eq!(
            (script.images[1].file.as_path(), script.images[1].service.as_str()),
            (Path::new("b/wrong.sys"), "consumer")
        );
        for other in ["b/other.sys", "third=x.sys"] {
            let said = put(&mut script, Path::new("run.toml"), Path::new(other)).expect_err(other);
            assert!(said.contains("nic, consumer") && !said.contains('\n'), "{said}");
        }
    }
}
