//! HTML elements of the page.

use std::fmt::Write as _;

pub(crate) fn figure(html: &mut String, file: &str, caption: &str) {
    let _ = writeln!(
        html,
        "<figure><a href=\"{file}\"><img src=\"{file}\" alt=\"{caption}\" loading=\"lazy\"></a>\
         <figcaption>{caption}</figcaption></figure>"
    );
}

pub(crate) fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
