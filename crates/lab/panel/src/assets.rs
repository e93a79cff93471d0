//! The page itself, as `npm run build` in `web/` has made it. It is checked in, so that nobody
//! needs Node to build this program; a test compares it with its sources.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// The files: address, type, content.
const ASSETS: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", include_str!("../web/dist/index.html")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("../web/dist/page.js")),
    ("/page.css", "text/css; charset=utf-8", include_str!("../web/dist/page.css")),
    ("/icon.svg", "image/svg+xml", include_str!("../web/dist/icon.svg")),
    ("/licenses.txt", "text/plain; charset=utf-8", include_str!("../web/dist/licenses.txt")),
];

/// The routes of the page's files.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> axum::Router<S> {
    ASSETS.into_iter().fold(axum::Router::new(), |router, (address, kind, content)| {
        let answer =
            async move || -> Response { ([(CONTENT_TYPE, kind)], content).into_response() };
        router.route(address, get(answer))
    })
}
