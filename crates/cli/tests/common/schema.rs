//! The schemas of JSON documents in `docs/api`: each document that a test sees is held against that of its `format`.
//!
//! `ESKER_UPDATE_GOLDEN=1` widens a schema by each document that it does not take yet. Types, names and the fields that
//! always are there come from documents. What a field means, and whether it may be null, comes from the Rust structs:
//! the struct of an object is the one that has the same fields.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Answers of servers: OpenAPI describes them.
const ANSWERS: [&str; 2] = ["esker-pool/1", "esker-target/1"];

/// Fields of configurations, which commands read again: they have no format.
const CONFIGURATIONS: [&str; 2] = ["spare_percent", "portal"];

/// Of a field that was null in each document: it may be anything.
const ALWAYS_NULL: &str = "null in all documents that tests have seen";

/// Objects with any names, which no struct says.
const MAPS: [&str; 1] = ["writers_held_seconds"];

/// Where the schema of a format is.
pub(crate) fn path(format: &str) -> PathBuf {
    let name = format.strip_prefix("esker-").unwrap_or(format);
    let name = name.split_once('/').map_or(name, |(name, _)| name);
    [ROOT, "docs/api", &format!("{name}.schema.json")].iter().collect()
}

/// Looks at the output of a command: a document has to be as its schema says.
#[track_caller]
pub(crate) fn check_output(output: &[u8]) {
    match serde_json::from_slice::<Value>(output) {
        Ok(document) if document.get("openapi").is_some() => {}
        Ok(document) if CONFIGURATIONS.iter().any(|name| document.get(name).is_some()) => {}
        Ok(document) if document.is_object() || document.is_array() => check(&document),
        _ => {}
    }
}

/// Holds a document against the schema of its format; writes the schema, where it is to be written.
#[track_caller]
pub(crate) fn check(document: &Value) {
    let format = document["format"].as_str().unwrap_or_else(|| panic!("no format: {document:#}"));
    if ANSWERS.contains(&format) {
        return;
    }
    let path = path(format);
    if std::env::var_os("ESKER_UPDATE_GOLDEN").is_some() {
        return widen(&path, format, document);
    }
    let advice = "ESKER_UPDATE_GOLDEN=1 widens the schema; a change that readers have to know has another format";
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; {advice}", path.display()));
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    each(&mut schema, &close);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{format}: {errors:#?}; {advice}");
}

/// Readers take a field that they do not know; a test takes none.
fn close(schema: &mut Map<String, Value>) {
    if schema.contains_key("properties") {
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
}

/// Does something to a schema and to all within it.
fn each(schema: &mut Value, change: &dyn Fn(&mut Map<String, Value>)) {
    let Value::Object(fields) = schema else { return };
    change(fields);
    let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(Map::values_mut).for_each(|inner| each(inner, change));
    for inner in ["items", "additionalProperties"] {
        fields.get_mut(inner).into_iter().for_each(|inner| each(inner, change));
    }
}

/// Has a schema take a document, too. Processes and threads of tests do so by turns.
fn widen(path: &Path, format: &str, document: &Value) {
    let lock = File::create(std::env::temp_dir().join("esker-schemas.lock")).unwrap();
    lock.lock().unwrap();
    let known = fs::read_to_string(path).ok();
    let mut known: Option<Value> = known.map(|text| serde_json::from_str(&text).unwrap());
    let is_null = |schema: &Map<String, Value>| schema.contains_key("$comment");
    known.iter_mut().for_each(|known| {
        each(known, &|schema| {
            if is_null(schema) {
                schema.remove("$comment");
                schema.insert("type".to_owned(), json!("null"));
            }
        })
    });
    let mut schema = schema_of(document, "");
    if let Some(known) = known {
        schema = both(known, schema);
    }
    let mut whole = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format,
    });
    each(&mut schema, &|schema| {
        if schema.get("type") == Some(&json!("null")) {
            schema.remove("type");
            schema.insert("$comment".to_owned(), json!(ALWAYS_NULL));
        }
    });
    schema["properties"]["format"] = json!({ "const": format });
    merge_into(&mut whole, schema);
    fs::write(path, format!("{whole:#}\n")).unwrap();
}

fn merge_into(whole: &mut Value, more: Value) {
    let more = more.as_object().unwrap().clone();
    whole.as_object_mut().unwrap().extend(more);
}

/// The schema of a value that is called `name`.
fn schema_of(value: &Value, name: &str) -> Value {
    match value {
        Value::Null => json!({ "type": "null" }),
        Value::Bool(_) => json!({ "type": "boolean" }),
        Value::String(_) => json!({ "type": "string" }),
        Value::Number(number) if number.is_f64() => json!({ "type": "number" }),
        Value::Number(_) => json!({ "type": "integer" }),
        Value::Array(items) => {
            let items = items.iter().map(|item| schema_of(item, ""));
            json!({ "type": "array", "items": items.reduce(both).unwrap_or(json!({})) })
        }
        Value::Object(fields) if MAPS.contains(&name) || RUST.maps.contains(name) => {
            let values = fields.values().map(|value| schema_of(value, ""));
            let values = values.reduce(both).unwrap_or(json!({}));
            json!({ "type": "object", "additionalProperties": values })
        }
        Value::Object(fields) => {
            let known = RUST.fields_of(fields);
            let mut properties = Map::new();
            let mut required = Vec::new();
            for (name, value) in fields {
                let mut schema = schema_of(value, name);
                let (is_nullable, is_optional, about) =
                    known.get(name).cloned().unwrap_or_default();
                if is_nullable {
                    schema = both(schema, json!({ "type": "null" }));
                }
                if let Some(about) = about {
                    schema["description"] = json!(about);
                }
                if !is_optional {
                    required.push(json!(name));
                }
                properties.insert(name.clone(), schema);
            }
            json!({ "type": "object", "properties": properties, "required": required })
        }
    }
}

/// The narrowest schema that takes everything that one of two takes.
fn both(one: Value, other: Value) -> Value {
    let (Value::Object(mut one), Value::Object(other)) = (one, other) else {
        unreachable!("schemas are objects")
    };
    if one.is_empty() || other.is_empty() {
        return if one.is_empty() { other.into() } else { one.into() };
    }
    for (key, value) in other {
        let merged = match (key.as_str(), one.remove(&key)) {
            (_, None) => value,
            ("type", Some(known)) => {
                let names = |value: Value| match value {
                    Value::Array(names) => names,
                    name => vec![name],
                };
                let mut all = names(known);
                all.extend(names(value));
                let is_number = all.contains(&json!("number"));
                all.retain(|one| !is_number || one != "integer");
                all.sort_by_key(Value::to_string);
                all.dedup();
                if all.len() == 1 { all.remove(0) } else { all.into() }
            }
            ("properties", Some(known)) => {
                let (Value::Object(mut known), Value::Object(more)) = (known, value) else {
                    unreachable!("properties are an object")
                };
                for (name, schema) in more {
                    let schema = match known.remove(&name) {
                        Some(before) => both(before, schema),
                        None => schema,
                    };
                    known.insert(name, schema);
                }
                known.into()
            }
            ("required", Some(known)) => {
                let more = value.as_array().unwrap();
                let kept = known.as_array().unwrap().iter().filter(|one| more.contains(one));
                kept.cloned().collect::<Vec<_>>().into()
            }
            ("items" | "additionalProperties", Some(known)) => both(known, value),
            _ => value,
        };
        one.insert(key, merged);
    }
    one.into()
}

/// Whether a field may be null, whether it may lack, and what it means.
type Field = (bool, bool, Option<String>);

/// The structs of all crates that have a JSON form.
struct Rust {
    structs: Vec<BTreeMap<String, Field>>,
    /// Names of fields with names of their own.
    maps: BTreeSet<String>,
}

static RUST: LazyLock<Rust> = LazyLock::new(|| {
    let mut rust = Rust { structs: Vec::new(), maps: BTreeSet::new() };
    let mut folders: Vec<PathBuf> = vec![Path::new(ROOT).join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("tests") {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                rust.read(&fs::read_to_string(path).unwrap());
            }
        }
    }
    rust
});

impl Rust {
    /// Enters the structs of a file that derive `Serialize`.
    fn read(&mut self, text: &str) {
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if !(line.starts_with("#[derive(") && line.contains("Serialize")) {
                continue;
            }
            let head =
                lines.by_ref().find(|line| !line.starts_with("#[") && !line.starts_with("//"));
            if head.is_none_or(|head| !head.contains("struct ") || !head.ends_with('{')) {
                continue;
            }
            let (mut fields, mut about, mut is_optional) = (BTreeMap::new(), Vec::new(), false);
            for line in lines.by_ref().take_while(|line| *line != "}") {
                if let Some(words) = line.strip_prefix("///") {
                    about.push(words.trim());
                } else if line.starts_with("#[") {
                    is_optional |= line.contains("skip_serializing_if");
                } else if let Some((name, of)) = line.split_once(": ") {
                    let name = name.rsplit(' ').next().unwrap().to_owned();
                    if of.contains("Map<") {
                        self.maps.insert(name.clone());
                    }
                    let text = (!about.is_empty()).then(|| about.join(" "));
                    fields.insert(name, (of.starts_with("Option<"), is_optional, text));
                    (about, is_optional) = (Vec::new(), false);
                }
            }
            self.structs.push(fields);
        }
    }

    /// The structs with an object's fields: those that have all of them, and no other that is always there.
    /// Where there are none, the largest that is a part of the object.
    fn fields_of(&self, object: &Map<String, Value>) -> BTreeMap<String, Field> {
        let names: BTreeSet<&String> = object.keys().filter(|name| *name != "format").collect();
        let is_part = |fields: &&BTreeMap<String, Field>| {
            fields.iter().all(|(name, field)| field.1 || names.contains(name))
        };
        let parts: Vec<_> = self.structs.iter().filter(is_part).collect();
        let is_whole =
            |fields: &&BTreeMap<String, Field>| names.iter().all(|name| fields.contains_key(*name));
        let mut its: Vec<_> = parts.iter().copied().filter(is_whole).collect();
        if its.is_empty() {
            its.extend(parts.into_iter().max_by_key(|fields| fields.len()));
            its.retain(|fields| fields.len() * 2 >= names.len());
        }
        let mut found = BTreeMap::new();
        for (name, (is_nullable, is_optional, about)) in its.into_iter().flatten() {
            let field = found.entry(name.clone()).or_insert((false, false, about.clone()));
            field.0 |= is_nullable;
            field.1 |= is_optional;
            field.2 = field.2.take().filter(|it| Some(it) == about.as_ref());
        }
        // Of the others: null where any field of the name may be.
        for name in names {
            let of_name = self.structs.iter().filter_map(|one| one.get(name));
            let is_nullable = of_name.into_iter().any(|field| field.0);
            found.entry(name.clone()).or_insert((is_nullable, false, None));
        }
        found
    }
}
