//! Values of the registry from a file of their own: a table of TOML for each service, as `registry` of an image in a script.

use std::{collections::BTreeMap, path::Path};

use toml::{Spanned, Value};

use super::{known, line_of, nearest, registry_value};
use crate::script::Script;

/// Adds the values of a file to the images with these services. They take the place of values of the same name.
///
/// # Errors
///
/// One line that begins with the path.
pub fn add_registry(script: &mut Script, path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    add(script, &text).map_err(|(line, words)| format!("{}: line {line}: {words}", path.display()))
}

type File = BTreeMap<String, Spanned<BTreeMap<String, Spanned<Value>>>>;

fn add(script: &mut Script, text: &str) -> Result<(), (usize, String)> {
    let file: File = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        (line_of(text, at), error.message().replace('\n', " "))
    })?;
    for (service, values) in file {
        let line = line_of(text, values.span().start);
        let files = script.all_images().filter(|image| image.service.eq_ignore_ascii_case(&service));
        let files: Vec<_> = files.map(|image| image.file.clone()).collect();
        if files.is_empty() {
            let meant = nearest(&service, script.all_images().map(|image| image.service.as_str()));
            return Err((line, format!("`{service}`: there is no image with this service{meant}")));
        }
        let values = values.into_inner().into_iter().map(|(name, value)| {
            // Of a service with two images, one may know the name.
            let why = files.iter().map(|file| known::no_parameter(file, &name));
            if let Some(words) = why.collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().next()) {
                return Err((line_of(text, value.span().start), words));
            }
            let value =
                registry_value(&name, &value).map_err(|problem| (line_of(text, problem.at.start), problem.words))?;
            Ok((name, value))
        });
        let values = values.collect::<Result<Vec<_>, _>>()?;
        for image in script.all_images_mut().filter(|image| image.service.eq_ignore_ascii_case(&service)) {
            image.registry.retain(|(name, _)| !values.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
            image.registry.extend(values.iter().cloned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::add;
    use crate::script::{RegistryValue, Script};

    fn script() -> Script {
        let mut script = Script::default_for(
            &["consumer.sys", "consumer.sys", "nic.sys", "softndk.sys"].map(std::path::PathBuf::from),
        );
        for image in &mut script.images {
            image.registry.push(("mode".to_owned(), RegistryValue::Number(1)));
        }
        script
    }

    #[test]
    fn values_go_to_every_image_of_the_service_and_replace_what_is_there() {
        let mut script = script();
        assert_eq!(add(&mut script, "[Consumer]\nMode = 2\nName = \"x\"\n"), Ok(()));
        let expected =
            [("Mode".to_owned(), RegistryValue::Number(2)), ("Name".to_owned(), RegistryValue::Text("x".to_owned()))];
        assert_eq!((&script.images[0].registry[..], &script.images[1].registry[..]), (&expected[..], &expected[..]));
        assert_eq!(script.images[2].registry.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let wrong = [
            ("[nic]\n\n[other]\na = 1", 3, "`other`"),
            ("[softndk]\nAdvise = 4\nAdvice = 4", 3, "did you mean `Advise`?"),
            ("[nic]\na = 1.5", 2, "`registry.a`"),
            ("[nic]\na = ", 2, ""),
            ("a = 1", 1, ""),
        ];
        for (text, line, words) in wrong {
            let (at, said) = add(&mut script(), text).expect_err(text);
            assert!(at == line && said.contains(words) && !said.contains('\n'), "{text}: line {at}: {said}");
        }
    }
}
