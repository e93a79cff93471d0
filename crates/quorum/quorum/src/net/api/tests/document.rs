//! The document that specifies the API, and what a server answers.

use serde_json::Value;

use super::*;

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

/// Checks a value against a schema: the part of JSON Schema that the document uses.
fn conforms(value: &Value, schema: &Value, document: &Value) -> bool {
    if let Some(name) = schema["$ref"].as_str() {
        return conforms(value, document.pointer(&name[1..]).unwrap(), document);
    }
    let is_type = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "null" => value.is_null(),
        other => panic!("type {other}"),
    };
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        single => vec![single.clone()],
    };
    let mut fits = types.iter().any(|name| is_type(name.as_str().unwrap()));
    if let Some(names) = schema["enum"].as_array() {
        fits &= names.contains(value);
    }
    if let (Some(minimum), Some(value)) = (schema["minimum"].as_u64(), value.as_u64()) {
        fits &= value >= minimum;
    }
    if schema["pattern"] == "^[0-9a-f]{64}$" {
        let text = value.as_str().unwrap();
        fits &= text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit());
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        fits &= values.iter().all(|value| conforms(value, items, document));
    }
    if let (Some(properties), Some(values)) = (schema["properties"].as_object(), value.as_object())
    {
        let required = schema["required"].as_array().unwrap();
        fits &= required.iter().all(|name| values.contains_key(name.as_str().unwrap()));
        fits &= values.iter().all(|(name, value)| {
            properties.get(name).is_some_and(|schema| conforms(value, schema, document))
        });
    }
    fits
}

/// Asserts that the document describes an answer to its request.
pub(super) fn assert_documented(method: &str, path: &str, answer: &(u16, String, Vec<u8>)) {
    let document = document();
    let (status, content_type, body) = answer;
    let path = path.split('?').next().unwrap();
    let is_message = path.starts_with("/v1/messages/");
    let path = if is_message { "/v1/messages/{digest}" } else { path };
    let operation = &document["paths"][path][method.to_lowercase()];
    let response = &operation["responses"][status.to_string()];
    let text = String::from_utf8_lossy(body);
    assert!(response.is_object(), "{method} {path}: {status} is not documented: {text}");
    if *status == 204 || response["content"].is_null() {
        assert!(body.is_empty() && response["content"].is_null(), "{method} {path}");
        return;
    }
    let content = &response["content"][content_type];
    assert!(content.is_object(), "{method} {path}: {status} {content_type} is not documented");
    if content_type == "application/json" {
        let body: Value = serde_json::from_slice(body).unwrap();
        assert!(conforms(&body, &content["schema"], &document), "{method} {path}: {body}");
    }
}

#[test]
fn document_and_server_have_the_same_operations() {
    let document = document();
    let documented = document["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(move |method| (path.clone(), method.to_uppercase()))
    });
    let served = route::ROUTES.iter();
    let served = served.map(|(path, method, _)| ((*path).to_owned(), method.to_string()));
    assert_eq!(documented.collect::<BTreeSet<_>>(), served.collect::<BTreeSet<_>>());
    let limit = document.pointer(
        "/paths/~1v1~1messages/post/requestBody/content/application~1octet-stream/schema/maxLength",
    );
    assert_eq!(limit.unwrap().as_u64().unwrap(), MAX_BODY_LEN as u64);
}

#[test]
fn answers_are_as_documented() {
    for is_ill in [false, true] {
        let served = Served::new(Fake { is_ill, ..Fake::default() });
        let header = &crate::protocol::group::HEADER_MAGIC[..];
        let of_message = &format!("/v1/messages/{}", MessageDigest::of(b"message"));
        let requests: &[(&str, &str, &[u8], u16)] = &[
            ("POST", "/v1/messages", b"message", 201),
            ("POST", "/v1/messages", b"message", 200),
            ("POST", "/v1/messages?a=b", b"message", 400),
            ("POST", "/v1/messages", header, 403),
            ("POST", "/v1/signatures", b"message", 200),
            ("POST", "/v1/signatures?encoding=pss", b"message", 200),
            ("POST", "/v1/signatures?encoding=raw", b"message", 400),
            ("POST", "/v1/signatures", b"another", 403),
            ("GET", of_message, b"", 200),
            ("GET", "/v1/messages/0a", b"", 400),
            ("GET", "/v1/pending", b"", 200),
            ("DELETE", of_message, b"", 204),
            ("DELETE", of_message, b"", 404),
            ("GET", of_message, b"", 404),
            ("DELETE", "/v1/refreshes/approval", b"", if is_ill { 409 } else { 202 }),
            ("GET", "/v1/bundle", b"", if is_ill { 503 } else { 200 }),
            ("POST", "/v1/commands", b"request", 200),
            ("POST", "/v1/refreshes", b"[[node]]", 202),
            ("POST", "/v1/refreshes", b"", 400),
            ("POST", "/v1/refreshes", b"\xff", 400),
            ("GET", "/v1/refreshes", b"", if is_ill { 404 } else { 200 }),
            ("GET", "/v1/refreshes", b"body", 400),
            ("DELETE", "/v1/refreshes", b"", if is_ill { 409 } else { 202 }),
            ("DELETE", "/v1/refreshes", b"body", 400),
            ("GET", "/v1/witnesses", b"", 200),
            ("GET", "/v1/public-key", b"", if is_ill { 503 } else { 200 }),
            ("GET", "/v1/headers", b"", 200),
            ("GET", "/v1/health", b"", if is_ill { 503 } else { 200 }),
            ("GET", "/v1/openapi.json", b"", 200),
        ];
        for (method, path, body, status) in requests {
            let answer = served.ask(method, path, body);
            assert_eq!(answer.0, *status, "{method} {path}");
            assert_documented(method, path, &answer);
        }
    }
}
