//! Reads Rust source just well enough to see which paths a file names.

use std::collections::BTreeMap;

/// A word or a mark of the source; comments, strings and numbers are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// An identifier or keyword.
    Word(String),
    /// `::`
    Path,
    /// Any other mark.
    Mark(char),
}

/// A path rooted in the crate, made absolute: `crate::io::open` is `["io", "open"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// Splits source into tokens, each with its line.
pub(crate) fn tokens(source: &str) -> Vec<(Token, usize)> {
    let chars: Vec<char> = source.chars().collect();
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let start = at;
        let next = chars.get(at + 1).copied().unwrap_or(' ');
        match chars[at] {
            '/' if next == '/' => at = skip_line(&chars, at),
            '/' if next == '*' => at = skip_block(&chars, at),
            '"' => at = skip_string(&chars, at),
            'r' if raw_hashes(&chars, at + 1).is_some() => at = skip_raw(&chars, at + 1),
            'b' if next == 'r' && raw_hashes(&chars, at + 2).is_some() => {
                at = skip_raw(&chars, at + 2);
            }
            '\'' => at = skip_quote(&chars, at),
            c if c.is_ascii_digit() => at = skip_word(&chars, at),
            c if c.is_alphabetic() || c == '_' => {
                at = skip_word(&chars, at);
                found.push((Token::Word(chars[start..at].iter().collect()), line));
            }
            ':' if next == ':' => {
                at += 2;
                found.push((Token::Path, line));
            }
            c => {
                at += 1;
                if !c.is_whitespace() {
                    found.push((Token::Mark(c), line));
                }
            }
        }
        line += chars[start..at.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    found
}

fn skip_line(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() && chars[at] != '\n' {
        at += 1;
    }
    at
}

fn skip_block(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn skip_string(chars: &[char], mut at: usize) -> usize {
    at += 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Number of hashes of a raw string whose `r` ends before `at`.
fn raw_hashes(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at.min(chars.len())..].iter().take_while(|c| **c == '#').count();
    (chars.get(at + hashes) == Some(&'"')).then_some(hashes)
}

fn skip_raw(chars: &[char], at: usize) -> usize {
    let hashes = raw_hashes(chars, at).unwrap_or(0);
    let mut at = at + hashes + 1;
    while at < chars.len() {
        let closing = chars[at + 1..].iter().take(hashes).filter(|c| **c == '#').count();
        if chars[at] == '"' && closing == hashes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    at
}

/// Passes over a character literal, or over the quote of a lifetime.
fn skip_quote(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        let end = chars[at + 3..].iter().position(|c| *c == '\'');
        return end.map_or(chars.len(), |end| at + 3 + end + 1);
    }
    if chars.get(at + 2) == Some(&'\'') { at + 3 } else { at + 1 }
}

fn skip_word(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() && (chars[at].is_alphanumeric() || chars[at] == '_') {
        at += 1;
    }
    at
}

/// The names that a file takes from other modules, and those that it hands on.
pub(crate) struct Imports {
    /// Paths from the crate's root, without those of `pub use`.
    pub(crate) paths: Vec<Vec<String>>,
    /// Targets of `pub use` by the name that they have here.
    pub(crate) exports: BTreeMap<String, Vec<String>>,
}

/// Source up to its inline tests.
pub(crate) fn without_tests(source: &str) -> &str {
    source.split("#[cfg(test)]\nmod tests {").next().unwrap_or(source)
}

/// Reads what a file that is the module `module` imports: by `crate::`, `super::`, `self::` and by names of its
/// submodules. Inline tests are left out.
pub(crate) fn imports(source: &str, module: &[String]) -> Imports {
    let source = without_tests(source);
    let module: Vec<&str> = module.iter().map(String::as_str).collect();
    let tokens = tokens(source);
    let word = |at: usize| match tokens.get(at) {
        Some((Token::Word(word), _)) => word.as_str(),
        _ => "",
    };
    let children: Vec<&str> = (1..tokens.len())
        .filter(|at| {
            word(at - 1) == "mod" && matches!(tokens.get(at + 1), Some((Token::Mark(';'), _)))
        })
        .map(word)
        .collect();
    let own: Vec<String> = module.iter().map(|name| (*name).to_owned()).collect();
    let mut exports = BTreeMap::new();
    let mut paths = Vec::new();
    // Inline modules, which belong to the file.
    let (mut here, mut braces) = (own.clone(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at].0 {
            Token::Mark('{') => {
                let inline = inline_module(&tokens, at);
                braces.push(inline.is_some());
                here.extend(inline);
            }
            Token::Mark('}') if braces.pop() == Some(true) => {
                here.pop();
            }
            _ => {}
        }
        let is_start = at == 0 || tokens[at - 1].0 != Token::Path;
        let is_known = is_root(word(at)) || children.contains(&word(at));
        let is_path =
            is_start && is_known && tokens.get(at + 1).map(|token| &token.0) == Some(&Token::Path);
        if !is_path || is_visibility(&tokens[..at]) {
            at += 1;
            continue;
        }
        let mut found = Vec::new();
        let start = match is_root(word(at)).then(|| root(word(at), &here)).flatten() {
            Some(start) => start,
            None => own.iter().cloned().chain([word(at).to_owned()]).collect(),
        };
        let end = tree(&tokens, at + 2, start, &mut found);
        let found = found.into_iter().map(|reference| reference.path);
        if is_export(&tokens[..at]) {
            exports.extend(found.filter_map(|path| Some((path.last()?.clone(), path))));
        } else {
            paths.extend(found);
        }
        at = end.max(at + 1);
    }
    Imports { paths, exports }
}

/// Do the tokens end in `pub use`, with or without a restriction?
fn is_export(tokens: &[(Token, usize)]) -> bool {
    let [before @ .., (Token::Word(keyword), _)] = tokens else { return false };
    let is_public = |token: &(Token, usize)| matches!(&token.0, Token::Word(word) if word == "pub");
    let statement = before
        .iter()
        .rev()
        .take_while(|(token, _)| !matches!(token, Token::Mark(';' | '}' | '{' | ']')));
    keyword == "use" && statement.into_iter().any(is_public)
}

/// The text of all comments, each begun by an empty line.
pub(crate) fn comments(source: &str) -> String {
    let mut text = String::new();
    let mut last = 0;
    for (number, line) in source.lines().enumerate() {
        // Strings that hold `//` are addresses.
        let Some((before, comment)) = line.split_once("//") else { continue };
        if before.ends_with(':') {
            continue;
        }
        let is_next = number == last + 1 && before.trim().is_empty();
        text.push_str(if is_next { "\n" } else { "\n\n" });
        text.push_str(comment.trim_start_matches(['/', '!']).trim());
        last = number;
    }
    text
}

/// Every `crate::`, `super::` and `self::` path of a file that is the module `module`.
pub(crate) fn references(source: &str, module: &[&str]) -> Vec<Reference> {
    let tokens = tokens(source);
    let mut found = Vec::new();
    let mut here: Vec<String> = module.iter().map(|name| (*name).to_owned()).collect();
    let mut braces: Vec<bool> = Vec::new();
    for at in 0..tokens.len() {
        match &tokens[at].0 {
            Token::Mark('{') => {
                let inline = inline_module(&tokens, at);
                braces.push(inline.is_some());
                here.extend(inline);
            }
            Token::Mark('}') if braces.pop() == Some(true) => {
                here.pop();
            }
            Token::Word(word)
                if is_root(word) && tokens.get(at + 1).map(|t| &t.0) == Some(&Token::Path) =>
            {
                let continued = at > 0 && tokens[at - 1].0 == Token::Path;
                let skip = continued || is_visibility(&tokens[..at]);
                if let (false, Some(root)) = (skip, root(word, &here)) {
                    tree(&tokens, at + 2, root, &mut found);
                }
            }
            _ => {}
        }
    }
    found
}

/// Do the tokens end in the `(in` of `pub(in path)`?
fn is_visibility(tokens: &[(Token, usize)]) -> bool {
    let [.., (Token::Mark('('), _), (Token::Word(word), _)] = tokens else { return false };
    word == "in"
}

fn is_root(word: &str) -> bool {
    matches!(word, "crate" | "super" | "self")
}

fn root(word: &str, here: &[String]) -> Option<Vec<String>> {
    match word {
        "crate" => Some(Vec::new()),
        "self" => Some(here.to_vec()),
        _ => here.split_last().map(|(_, parents)| parents.to_vec()),
    }
}

/// Returns the name of the inline module whose brace is at `at`.
fn inline_module(tokens: &[(Token, usize)], at: usize) -> Option<String> {
    match (at.checked_sub(2).map(|k| &tokens[k].0)?, &tokens[at - 1].0) {
        (Token::Word(keyword), Token::Word(name)) if keyword == "mod" => Some(name.clone()),
        _ => None,
    }
}

/// Follows a path from `at`, with its groups, and returns where it ends.
fn tree(
    tokens: &[(Token, usize)],
    mut at: usize,
    mut path: Vec<String>,
    found: &mut Vec<Reference>,
) -> usize {
    let line = tokens[at.min(tokens.len() - 1)].1;
    while let Some((token, _)) = tokens.get(at) {
        match token {
            Token::Word(word) if word == "super" => {
                path.pop();
            }
            Token::Word(word) if word == "self" => {}
            Token::Word(word) => path.push(word.clone()),
            Token::Mark('*') => path.push("*".to_owned()),
            Token::Mark('{') => return group(tokens, at + 1, &path, found),
            _ => break,
        }
        at += 1;
        if tokens.get(at).map(|t| &t.0) != Some(&Token::Path) {
            break;
        }
        at += 1;
    }
    found.push(Reference { path, line });
    at
}

fn group(
    tokens: &[(Token, usize)],
    mut at: usize,
    path: &[String],
    found: &mut Vec<Reference>,
) -> usize {
    while let Some((token, _)) = tokens.get(at) {
        match token {
            Token::Mark('}') => return at + 1,
            Token::Word(_) | Token::Mark('{' | '*') => {
                at = tree(tokens, at, path.to_vec(), found);
                // A path may be renamed: `a as b`.
                while matches!(tokens.get(at), Some((Token::Word(_), _))) {
                    at += 1;
                }
            }
            _ => at += 1,
        }
    }
    at
}
