//! The description of all requests (OpenAPI 3.1), out of the table of routes.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::answer::{RefusedView, WouldView};
use super::route::{Route, Serves};

/// The whole document of a server.
pub(crate) fn document<S: Serves>(title: &str, about: &str) -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|it| it.definitions_path = "/components/schemas".into())
        .with(|it| it.meta_schema = None);
    let mut asked = settings.clone().for_deserialize().into_generator();
    let mut answered = settings.for_serialize().into_generator();
    let refused = answered.subschema_for::<RefusedView>();
    let would = answered.subschema_for::<WouldView>();
    let mut paths: Map<String, Value> = Map::new();
    for route in S::routes() {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        item[route.method.to_ascii_lowercase()] =
            operation(route, (&mut asked, &mut answered), &json!(refused), &json!(would));
    }
    let mut schemas = asked.take_definitions(true);
    schemas.extend(answered.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": "1",
            "description": format!("{about} What is refused has changed nothing. A change with the header \
                `Idempotency-Key` that is repeated with the same key is made once, and gives the first answer."),
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        // Without a token at the socket, with one over TCP.
        "security": [{}, { "token": [] }],
    })
}

fn operation<S: Serves>(
    route: &Route<S>,
    (asked, answered): (&mut SchemaGenerator, &mut SchemaGenerator),
    refused: &Value,
    would: &Value,
) -> Value {
    let content = |schema: &Value| json!({ "application/json": { "schema": schema } });
    let mut answer = json!((route.answer)(answered));
    if route.request.is_some() {
        let operation = json!({
            "type": "object",
            "properties": { "operation": { "type": "string", "description": "The id of the change." } },
            "required": ["operation"],
        });
        answer = json!({ "anyOf": [{ "allOf": [answer, operation] }, would] });
    }
    let mut found = json!({
        "operationId": route.id,
        "summary": route.about,
        "parameters": parameters(route),
        "responses": {
            "200": { "description": "Done, or said what would be", "content": content(&answer) },
            "default": { "description": "Refused: nothing was changed", "content": content(refused) },
        },
    });
    if let Some(request) = route.request {
        let schema = json!(request(asked));
        found["requestBody"] = json!({ "content": content(&schema) });
    }
    found
}

fn parameters<S: Serves>(route: &Route<S>) -> Vec<Value> {
    let names = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let text = json!({ "type": "string" });
    let mut found: Vec<Value> = names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": text }))
        .collect();
    for (name, about) in route.queries {
        found.push(json!({ "name": name, "in": "query", "description": about, "schema": text }));
    }
    if route.request.is_some() {
        found.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "description": "The id of the change: 1 to 128 ASCII letters, digits and - _ . :",
            "schema": text,
        }));
    }
    found
}
