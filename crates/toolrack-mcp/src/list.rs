//! The parameters of the four paged lists.

use serde::Serialize;

macro_rules! list_params {
    ($($name:ident $what:literal;)*) => {
        $(
            #[doc = concat!("Asks for a page of ", $what, ".")]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
            pub struct $name<'a> {
                /// Where to go on: the `next_cursor` of the page before, and nothing for the first
                /// page. An empty string is a cursor like any other.
                #[serde(skip_serializing_if = "Option::is_none")]
                pub cursor: Option<&'a str>,
            }
        )*
    };
}

list_params! {
    ListToolsParams "tools";
    ListResourcesParams "resources";
    ListResourceTemplatesParams "resource templates";
    ListPromptsParams "prompts";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cursor: Option<&str>, expected: &str) {
        let params = ListToolsParams { cursor };
        assert_eq!(serde_json::to_string(&params).unwrap(), expected);
    }

    #[test]
    fn an_empty_cursor_is_sent() {
        check(None, "{}");
        check(Some(""), r#"{"cursor":""}"#);
        check(Some("a\n"), r#"{"cursor":"a\n"}"#);
    }
}
