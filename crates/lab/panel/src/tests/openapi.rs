//! The interface and its document, `docs/formats/panel-api.json`, say the same.

use std::collections::BTreeSet;

use super::*;
use crate::api::{OPENAPI, paths};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

/// What a reference refers to, or the value itself.
fn resolve<'a>(value: &'a Value, document: &'a Value) -> &'a Value {
    let name = value["$ref"].as_str();
    name.map_or(value, |name| document.pointer(&name[1..]).unwrap_or_else(|| panic!("{name}")))
}

/// What of a value does not conform to a schema: the part of JSON Schema that the document uses.
fn mismatch(value: &Value, schema: &Value, document: &Value) -> Option<String> {
    let schema = resolve(schema, document);
    if let Some(schemas) = schema["anyOf"].as_array() {
        let mut mismatches = schemas.iter().map(|schema| mismatch(value, schema, document));
        let any = mismatches.any(|found| found.is_none());
        return (!any).then(|| format!("{value} is none of {schema}"));
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        single => vec![single.clone()],
    };
    let is_type = |name: &Value| match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("type {other}"),
    };
    let is_listed = schema["enum"].as_array().is_none_or(|names| names.contains(value));
    let least = schema["minimum"].as_f64().zip(value.as_f64());
    if !types.iter().any(is_type) || !is_listed || least.is_some_and(|(least, it)| it < least) {
        return Some(format!("{value} is not {schema}"));
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        return values.iter().find_map(|value| mismatch(value, items, document));
    }
    let values = value.as_object()?;
    let required = schema["required"].as_array().into_iter().flatten();
    let mut missing = required.filter(|name| !values.contains_key(name.as_str().unwrap()));
    if let Some(name) = missing.next() {
        return Some(format!("{name} is missing in {value}"));
    }
    values.iter().find_map(|(name, value)| {
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(schema), _) => mismatch(value, schema, document),
            (None, Value::Bool(false)) => Some(format!("{name} is not in {schema}")),
            (None, Value::Object(_)) => mismatch(value, &schema["additionalProperties"], document),
            (None, _) => None,
        }
    })
}

/// Asserts that the document describes an answer.
fn assert_documented(path: &str, method: &str, status: StatusCode, kind: &str, body: &[u8]) {
    let document = document();
    let responses = &document["paths"][path][method]["responses"];
    let response = resolve(&responses[status.as_str()], &document);
    assert!(response.is_object(), "{method} {path}: {status} is not documented");
    let Some(content) = response.get("content") else {
        assert!(body.is_empty(), "{method} {path}: {status} has a body");
        return;
    };
    let kind = kind.split(';').next().unwrap();
    let schema = &content[kind]["schema"];
    assert!(schema.is_object(), "{method} {path}: {status} {kind} is not documented");
    let body = match kind {
        "application/json" => serde_json::from_slice(body).unwrap(),
        _ => Value::from(String::from_utf8_lossy(body)),
    };
    let mismatch = mismatch(&body, schema, &document);
    assert!(mismatch.is_none(), "{method} {path}: {status}: {}", mismatch.unwrap());
}

#[tokio::test]
async fn the_document_and_the_server_have_the_same_operations() {
    let document = document();
    let documented = document["paths"].as_object().unwrap();
    let served = paths().map(|(path, _)| path);
    let names: BTreeSet<&str> = documented.keys().map(String::as_str).collect();
    assert_eq!(names, served.into_iter().collect());
    let panel = TestPanel::new(MEASURES);
    let mut operations = BTreeSet::new();
    for path in served {
        let actual = path.replace("{id}", "20261128-154233-7f3a7f3a").replace("{name}", "x.svg");
        for method in METHODS {
            let (status, answer) = panel.call(&method.to_uppercase(), &actual, &Value::Null).await;
            let operation = &documented[path][method];
            let is_served = status != StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(is_served, operation.is_object(), "{method} {path}: {status}");
            if is_served {
                let id = operation["operationId"].as_str().unwrap();
                assert!(operations.insert(id.to_owned()), "{id} is there twice");
            } else {
                assert!(answer["error"].as_str().is_some_and(|it| !it.is_empty()), "{answer}");
            }
        }
    }
}

#[tokio::test]
async fn answers_are_as_documented() {
    let panel = TestPanel::new(MEASURES);
    let path = panel.start().await;
    let run = panel.work_until(&path, "finished").await;
    let id = run["id"].as_str().unwrap();
    fs::write(panel.directory.path().join("runs").join(id).join("results.csv"), "a\n1\n").unwrap();
    let channel = |name: &str, risk: f64| json!({ "name": name, "risk": risk, "loss": 0.01, "delay_ms": 5, "rate": 50 });
    let channels = json!([channel("a", 0.1), channel("b", 0.2), channel("c", 0.3)]);
    let plan = json!({ "channels": channels, "kappa": 1.5, "mu": 2, "objective": "privacy" });
    let impossible = json!({ "channels": channels, "objective": "rate", "max_risk": 1e-9 });
    let surface = json!({ "channels": channels, "value": "risk", "steps": 5 });
    let front = json!({ "channels": channels, "x": "risk", "y": "rate" });
    let same = json!({ "channels": channels, "x": "risk", "y": "risk" });
    let (run, none) = ("/api/runs/{id}", json!(null));
    let requests = [
        ("/api/openapi.json", "get", &none, 200),
        ("/api/templates", "get", &none, 200),
        ("/api/networks", "get", &none, 200),
        ("/api/experiments", "get", &none, 200),
        ("/api/toml", "post", &computation(), 200),
        ("/api/toml", "post", &json!({}), 422),
        ("/api/toml", "post", &json!([]), 422),
        ("/api/predict", "post", &computation(), 200),
        ("/api/plan", "post", &plan, 200),
        ("/api/plan", "post", &impossible, 422),
        ("/api/plan/surface", "post", &surface, 200),
        ("/api/plan/front", "post", &front, 200),
        ("/api/plan/front", "post", &same, 422),
        ("/api/live", "get", &none, 200),
        ("/api/runs", "post", &computation(), 201),
        ("/api/queue", "get", &none, 200),
        ("/api/runs", "get", &none, 200),
        ("/api/runs?limit=x", "get", &none, 400),
        ("/api/runs?before=x", "get", &none, 404),
        (run, "get", &none, 200),
        ("/api/runs/{id}/events", "get", &none, 200),
        ("/api/runs/{id}/files/results.csv", "get", &none, 200),
        ("/api/runs/{id}/files/compute.toml", "get", &none, 200),
        ("/api/runs/{id}/files/x.svg", "get", &none, 404),
        (run, "patch", &json!({ "note": "the first" }), 204),
        (run, "patch", &json!({}), 422),
        ("/api/runs/{id}/stop", "post", &none, 409),
        ("/api/runs/{id}/resume", "post", &none, 409),
        ("/api/runs/{id}/link", "post", &none, 201),
        ("/api/runs/{id}/link", "delete", &none, 204),
        (run, "delete", &none, 204),
        (run, "get", &none, 404),
        (run, "delete", &none, 404),
    ];
    for (path, method, body, expected) in requests {
        let actual = path.replace("{id}", id);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = panel.request(&method.to_uppercase(), &actual).body(body.into()).unwrap();
        let answer = panel.send(request).await;
        let status = answer.status();
        let kind = answer.headers().get("content-type");
        let kind = kind.map(|kind| kind.to_str().unwrap().to_owned()).unwrap_or_default();
        let body = bytes(answer).await;
        let text = String::from_utf8_lossy(&body);
        assert_eq!(status.as_u16(), expected, "{method} {actual}: {text}");
        let path = path.split('?').next().unwrap();
        let path = path.split_once("/files/").map_or(path, |_| "/api/runs/{id}/files/{name}");
        assert_documented(path, method, status, &kind, &body);
    }
}

#[tokio::test]
async fn refusals_are_documents_whatever_is_wrong() {
    let panel = TestPanel::new(MEASURES);
    let requests = [
        ("GET", "/api/runs?limit=-1", "", "application/json", 400),
        ("GET", "/api/runs?limit=1&limit=2", "", "application/json", 400),
        ("GET", "/api/runs/%ff", "", "application/json", 404),
        ("GET", "/api/runs/%ff/files/%ff", "", "application/json", 404),
        ("GET", "/api/other", "", "application/json", 404),
        ("POST", "/api/runs", "{", "application/json", 400),
        ("POST", "/api/runs", "{}", "text/plain", 415),
        ("POST", "/api/plan", "[]", "application/json", 422),
        ("TRACE", "/api/runs", "", "application/json", 405),
    ];
    for (method, path, body, kind, expected) in requests {
        let request = Request::builder().method(method).uri(path).header("host", ADDRESS);
        let request = request.header("cookie", format!("sunder-8840={}", panel.token));
        let request = request.header("content-type", kind).body(body.into()).unwrap();
        let answer = panel.send(request).await;
        assert_eq!(answer.status().as_u16(), expected, "{method} {path}");
        let document: Value = serde_json::from_slice(&bytes(answer).await).unwrap();
        let error = document["error"].as_str().unwrap();
        assert!(!error.is_empty() && !error.contains('\n'), "{error}");
    }
}
