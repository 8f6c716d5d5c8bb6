//! Somebody who agrees to everything and fills in forms as they were handed out.

use toolrack_client::ClientHandler;
use toolrack_mcp::{
    ClientCapabilities, Elicitation, ElicitationAnswer, ElicitationCapability, FormContent,
};
use toolrack_transport::BoxFuture;

use crate::sample_values;

#[derive(Debug)]
pub(crate) struct Person;

impl ClientHandler for Person {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            elicitation: Some(ElicitationCapability { form: true, url: false }),
            ..ClientCapabilities::default()
        }
    }

    fn elicit<'a>(
        &'a self,
        _server: &'a str,
        question: Elicitation,
    ) -> BoxFuture<'a, ElicitationAnswer> {
        Box::pin(async move {
            let Elicitation::Form(form) = question else { return ElicitationAnswer::Decline };
            let mut content = FormContent::new();
            form.schema.fill_defaults(&mut content);
            for field in form.schema.fields().iter().filter(|field| field.required) {
                content
                    .entry(field.name.clone())
                    .or_insert_with(|| sample_values::field(&field.kind));
            }
            ElicitationAnswer::Accept { content: Some(content) }
        })
    }
}
