//! Messages and files that arrive. Before they are shown, the keys of their senders are compared
//! with the contacts.

use std::time::SystemTime;

use keys::IdentityPublicKey;

use super::super::contacts::ContactTrust;
use super::super::event::ChatEvent;
use super::super::history::ChatHistoryEntry;
use super::super::shared_file::{FileOffer, SharedFile};
use super::ChatDriver;
use crate::protocol::event::MixClientEvent;

/// An event of the client as it is shown.
pub(super) struct PreparedEvent {
    event: ChatEvent,
    /// Of a message: its sender, the trust in it, and the text, for the history.
    message: Option<(String, ContactTrust, String)>,
}

impl ChatDriver {
    /// Prepares an event of the client to be shown. What has to be on the disk before is queued to
    /// be written.
    pub(super) fn prepare(&mut self, event: MixClientEvent) {
        self.prepared = Some(match event {
            MixClientEvent::Message { key, from, text } => self.prepare_message(key, from, text),
            event => PreparedEvent { event: ChatEvent::Client(event), message: None },
        });
    }

    fn prepare_message(
        &mut self,
        key: Option<IdentityPublicKey>,
        from: String,
        text: String,
    ) -> PreparedEvent {
        let (from, trust) = self.identify(key, from);
        let Some(file) = SharedFile::from_text(&text) else {
            let event = ChatEvent::Message { from: from.clone(), trust, text: text.clone() };
            return PreparedEvent { event, message: Some((from, trust, text)) };
        };
        let label = file.label();
        let event = match self.offers.add(key, &from, &file) {
            Some(number) => {
                // Once it was shown, its message is acknowledged and not in the state any more.
                self.write_offers();
                let len = file.content.len();
                ChatEvent::FileOffered { number, from: from.clone(), trust, name: file.name, len }
            }
            None => ChatEvent::Warning(format!(
                "{label} of {from} is dropped: too many files wait for /accept or /decline"
            )),
        };
        PreparedEvent { event, message: Some((from, trust, label)) }
    }

    /// Shows a prepared event.
    pub(super) fn show(&mut self, PreparedEvent { event, message }: PreparedEvent) {
        self.output.show(event);
        if let Some((from, trust, text)) = message {
            self.remember(false, &from, trust, &text);
        }
    }

    /// The name of a sender, and the trust in its key. It may have written in an earlier epoch, in
    /// which it had another name, or the name of somebody else.
    fn identify(&mut self, key: Option<IdentityPublicKey>, from: String) -> (String, ContactTrust) {
        let Some(key) = key else { return (from, ContactTrust::Seen) };
        let members = self.compared.as_deref().unwrap_or_default();
        if let Some((_, name)) = members.iter().find(|(other, _)| *other == key) {
            return (name.to_string(), self.contacts.trust_in(&key, name.as_str()));
        }
        let is_known = self.contacts.is_known(&from);
        let (trust, warning) = self.contacts.meet_former(&key, &from, members);
        if let Some(warning) = warning {
            self.output.report(ChatEvent::Warning(warning));
        }
        if !is_known {
            self.store_contacts();
        }
        (from, trust)
    }

    /// Compares the members with those that are known, if they have changed.
    pub(super) fn update_contacts(&mut self) {
        let is_compared = match &self.compared {
            Some(compared) => {
                self.client.others().eq(compared.iter().map(|(key, name)| (key, name)))
            }
            None => self.client.status().epoch == 0,
        };
        if is_compared {
            return;
        }
        let others: Vec<_> = self.client.others().map(|(key, name)| (*key, name.clone())).collect();
        for warning in self.contacts.update(&others) {
            self.output.report(ChatEvent::Warning(warning));
        }
        let is_first = self.compared.replace(others).is_none();
        self.store_contacts();
        if is_first {
            self.report_offers();
        }
    }

    /// Reports the files that have waited since an earlier run.
    fn report_offers(&mut self) {
        let offers = self.offers.iter().map(|FileOffer { number, from, key, file }| {
            let trust = key.map(|key| self.contacts.trust_in(&key, from)).unwrap_or_default();
            let (from, name, len) = (from.clone(), file.name.clone(), file.content.len());
            ChatEvent::FileOffered { number: *number, from, trust, name, len }
        });
        let offers: Vec<_> = offers.collect();
        for offer in offers {
            self.output.report(offer);
        }
    }

    /// Stores the contacts after the reports so far, and reports them.
    pub(super) fn store_contacts(&mut self) {
        self.write_contacts();
        self.output.report(ChatEvent::Contacts(self.contacts.list()));
    }

    /// Adds a message to the history, if there is one.
    pub(super) fn remember(&mut self, is_own: bool, name: &str, trust: ContactTrust, text: &str) {
        if self.has_history {
            let (at, name, text) = (SystemTime::now(), name.to_owned(), text.to_owned());
            self.output.remember(ChatHistoryEntry { at, is_own, name, trust, text });
        }
    }
}
