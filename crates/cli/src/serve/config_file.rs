//! The configuration file: the settings of `definition` under the same names, in TOML. Its values become the defaults
//! of the command line's parser, so that a flag goes before the environment, that before the file, and one parser
//! checks them all. What the settings are is `definition`'s; this also prints them, as a file and as documentation.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::definition::{NOT_SETTINGS, ServeArguments};
use crate::exec::Failure;
use crate::exit_code;

/// Settings, and where each came from.
pub struct Loaded {
    pub arguments: ServeArguments,
    matches: ArgMatches,
    /// Arguments by id that the file sets.
    in_file: BTreeSet<String>,
}

impl Loaded {
    /// `words` are the arguments of `cofferdam serve`.
    pub fn from_words(words: impl IntoIterator<Item = OsString>) -> Result<Self, Failure> {
        let words: Vec<OsString> = std::iter::once("serve".into()).chain(words).collect();
        let arguments = parse(definition(), &words)?.0;
        let file = match arguments.config {
            Some(file) => Some(file),
            None => default_file().filter(|file| file.exists()),
        };
        let mut command = definition();
        let mut in_file = BTreeSet::new();
        if let Some(file) = file {
            for (id, values) in read(&file)? {
                command = command.mut_arg(&id, |argument| argument.default_values(values));
                in_file.insert(id);
            }
        }
        let (arguments, matches) = parse(command, &words)?;
        Ok(Self { arguments, matches, in_file })
    }

    /// Every setting as a file that means the same: what is left at its default is commented out.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for setting in settings(&definition()) {
            let id = setting.get_id().as_str();
            let given =
                matches!(self.matches.value_source(id), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
                    || self.in_file.contains(id);
            let values = self.matches.get_raw(id).into_iter().flatten();
            let values: Vec<String> = values.map(|value| value.to_string_lossy().into_owned()).collect();
            let _ = writeln!(text, "# {}", help(setting));
            let _ = writeln!(text, "# --{}, {}", name(setting), variable(setting));
            let comment = if given { "" } else { "# " };
            let _ = writeln!(text, "{comment}{} = {}\n", name(setting), toml_value(setting, &values));
        }
        text.trim_end().to_owned()
    }
}

/// `$XDG_CONFIG_HOME/cofferdam/config.toml`, or the same below `~/.config`.
fn default_file() -> Option<PathBuf> {
    Some(user_directory("XDG_CONFIG_HOME", ".config")?.join("cofferdam/config.toml"))
}

/// Where jobs are kept if nobody says.
pub fn default_data() -> Result<PathBuf, Failure> {
    let directory = user_directory("XDG_DATA_HOME", ".local/share").ok_or_else(|| {
        Failure::new(exit_code::USAGE, "there is no home directory to keep jobs in; say where with --data DIR")
    })?;
    Ok(directory.join("cofferdam"))
}

fn user_directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The specification has relative ones ignored.
    set(variable).filter(|path| path.is_absolute()).or_else(|| Some(set("HOME")?.join(below_home)))
}

fn definition() -> Command {
    ServeArguments::augment_args(Command::new("serve").bin_name("cofferdam serve"))
}

fn parse(command: Command, words: &[OsString]) -> Result<(ServeArguments, ArgMatches), Failure> {
    let wrong = |error: clap::Error| {
        Failure::new(exit_code::USAGE, error.to_string().lines().next().unwrap_or_default().replace("error: ", ""))
    };
    let matches = command.try_get_matches_from(words).map_err(wrong)?;
    let arguments = ServeArguments::from_arg_matches(&matches).map_err(wrong)?;
    Ok((arguments, matches))
}

/// Ids of arguments with their values, each of them checked.
fn read(file: &Path) -> Result<Vec<(String, Vec<String>)>, Failure> {
    let wrong =
        |problem: String| Failure::new(exit_code::CONFIGURATION_WRONG, format!("{}: {problem}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(format!("it cannot be read: {error}")))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map(|span| text[..span.start].lines().count().max(1));
        let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        wrong(format!("{line}{}", error.message()))
    })?;
    let command = definition();
    let mut read = Vec::new();
    for (key, value) in table {
        let setting = settings(&command).find(|setting| name(setting) == key.replace('_', "-")).ok_or_else(|| {
            wrong(format!("there is no setting {key}; all of them are shown by: cofferdam serve --print-config"))
        })?;
        let id = setting.get_id().to_string();
        if read.iter().any(|(other, _)| *other == id) {
            return Err(wrong(format!("{key} is there twice, with a dash and with an underscore; keep one")));
        }
        let values = text_of(setting, value).map_err(|expected| wrong(format!("{key} must be {expected}")))?;
        let words = values.iter().map(|value| format!("--{}={value}", name(setting)));
        if let Err(error) = definition().try_get_matches_from(std::iter::once("serve".to_owned()).chain(words)) {
            let reason = std::error::Error::source(&error).map(ToString::to_string);
            let reason = reason.unwrap_or_else(|| error.to_string().lines().next().unwrap_or_default().to_owned());
            return Err(wrong(format!("{key} cannot be {}: {reason}", toml_value(setting, &values))));
        }
        if !values.is_empty() {
            read.push((id, values));
        }
    }
    Ok(read)
}

/// The value as a flag would have it, or what it should have been.
fn text_of(setting: &Arg, value: toml::Value) -> Result<Vec<String>, &'static str> {
    match value {
        toml::Value::Array(values) if is_list(setting) => {
            let text = |value| match value {
                toml::Value::String(text) => Ok(text),
                _ => Err("a list of texts"),
            };
            values.into_iter().map(text).collect()
        }
        _ if is_list(setting) => Err("a list of texts"),
        toml::Value::String(text) if !is_number(setting) => Ok(vec![text]),
        toml::Value::Integer(number) => Ok(vec![number.to_string()]),
        _ if is_number(setting) => Err("a whole number"),
        _ => Err("a text in quotes"),
    }
}

fn settings(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|argument| !NOT_SETTINGS.contains(&argument.get_id().as_str()))
}

fn name(setting: &Arg) -> &str {
    setting.get_long().expect("every setting has a long name")
}

fn variable(setting: &Arg) -> String {
    setting.get_env().expect("every setting has a variable").to_string_lossy().into_owned()
}

fn help(setting: &Arg) -> String {
    setting.get_help().expect("every setting has help").to_string()
}

fn placeholder(setting: &Arg) -> String {
    setting.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect()
}

fn is_list(setting: &Arg) -> bool {
    matches!(setting.get_action(), ArgAction::Append)
}

fn is_number(setting: &Arg) -> bool {
    placeholder(setting) == "N"
}

fn toml_value(setting: &Arg, values: &[String]) -> String {
    let quoted = |value: &String| toml::Value::String(value.clone()).to_string();
    match values {
        values if is_list(setting) => format!("[{}]", values.iter().map(quoted).collect::<Vec<_>>().join(", ")),
        [] if is_number(setting) => placeholder(setting),
        [] => quoted(&placeholder(setting)),
        [value, ..] if is_number(setting) => value.clone(),
        [value, ..] => quoted(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UPDATE: &str = "UPDATE_DOCUMENTATION";

    /// docs/configuration.md, whole.
    fn documentation() -> String {
        let mut text = String::from(include_str!("configuration.head.md"));
        for setting in settings(&definition()) {
            let default: Vec<String> =
                setting.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
            let default = if default.is_empty() { String::new() } else { format!("`{}`", default.join(",")) };
            let (name, variable, meaning) = (name(setting), variable(setting), help(setting));
            let _ = writeln!(text, "| `{name}` | `{variable}` | {default} | {meaning} |");
        }
        text
    }

    #[test]
    fn the_documentation_is_what_the_definition_says() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        if std::env::var_os(UPDATE).is_some() {
            std::fs::write(&file, documentation()).unwrap();
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            written == documentation(),
            "docs/configuration.md is stale; write it again: {UPDATE}=1 cargo test -p cofferdam documentation"
        );
    }

    #[test]
    fn every_setting_of_the_definition_is_complete() {
        for setting in settings(&definition()) {
            assert_eq!(variable(setting), format!("COFFERDAM_{}", name(setting).to_uppercase().replace('-', "_")));
            assert!(!help(setting).is_empty() && !placeholder(setting).is_empty(), "{}", name(setting));
        }
    }
}
