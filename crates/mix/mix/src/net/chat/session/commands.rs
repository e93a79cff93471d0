//! Commands of the user.

use super::super::contacts::{ALL, ContactTrust};
use super::super::event::QueuedMessage;
use super::super::shared_file::SharedFile;
use super::{ChatAnswer, ChatDriver, ChatEvent, INVITATION_LASTS};
use crate::protocol::client::{CancelledChatMessages, MixClientSendError};
use crate::protocol::membership::{MemberName, NameBinding, ProxyAddress};

/// A command of the user. One event answers each, except [`ChatCommand::Accept`],
/// [`ChatCommand::Decline`], [`ChatCommand::Finish`] and [`ChatCommand::Stop`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatCommand {
    /// Sends a message.
    Say {
        /// The receiver: a member, a named group, or `all`. Each member gets its own message.
        to: String,
        /// The text.
        text: String,
    },
    /// Sends a small file, as a message.
    SendFile {
        /// The receiver, as in [`ChatCommand::Say`].
        to: String,
        /// The file's name.
        name: String,
        /// The content, of at most [`super::super::MAX_SHARED_FILE_LEN`] bytes.
        content: Vec<u8>,
    },
    /// Saves a file that was offered.
    Accept(u32),
    /// Drops a file that was offered.
    Decline(u32),
    /// Drops the messages to a member, a named group or all members of which nothing was sent.
    Cancel {
        /// The receiver; `None`: all.
        to: Option<String>,
    },
    /// Names a group of members, or forgets it.
    SetGroup {
        /// The name.
        name: MemberName,
        /// The members; none: the group is forgotten.
        members: Vec<String>,
    },
    /// Shows the safety number of a member, or marks the member as verified.
    Verify {
        /// The member.
        name: String,
        /// The number as the user has read it at the member.
        number: Option<String>,
    },
    /// Accepts the new key of a member without a comparison.
    Trust(String),
    /// Makes an invitation for a person, who must join with this name.
    Invite(MemberName),
    /// Makes an invitation for a person, who may join with any name.
    InviteAnyName(MemberName),
    /// Removes a member.
    Remove(MemberName),
    /// Makes a member an administrator.
    AddAdministrator(MemberName),
    /// Takes a member, or this one, from the administrators.
    RemoveAdministrator(MemberName),
    /// Makes a member an administrator in the place of this one.
    HandOver(MemberName),
    /// Announces that the proxy has another address or key.
    MoveProxy(ProxyAddress),
    /// Returns the newest list of members, as [`ChatEvent::Exported`].
    Export,
    /// Takes over an exported list of members.
    Import(Vec<u8>),
    /// Compares the list of members with an exported one of another branch of the group:
    /// [`ChatEvent::ListCompared`].
    CompareList(Vec<u8>),
    /// Follows an exported list of another branch of the group from now on.
    ReplaceList(Vec<u8>),
    /// Leaves the group.
    Leave,
    /// Ends the chat after the configured number of rounds, so that the proxy does not see when a
    /// message was received or delivered.
    Finish,
    /// Ends the chat at once. The proxy sees when, so the reason must not be a message.
    Stop,
}

impl ChatDriver {
    pub(super) fn run_command(&mut self, command: ChatCommand) {
        let now = self.now();
        let done = |done: Result<(), String>, text: &str| match done {
            Ok(()) => ChatEvent::Done(text.to_owned()),
            Err(why) => ChatEvent::NotDone(why),
        };
        let needs_files = matches!(
            command,
            ChatCommand::SetGroup { .. }
                | ChatCommand::Verify { number: Some(_), .. }
                | ChatCommand::Trust(_)
        );
        let event = match command {
            ChatCommand::Finish => return self.presence.leave_after(self.stay),
            ChatCommand::Stop => return self.presence.leave_after(0),
            ChatCommand::Accept(number) => return self.accept(number),
            ChatCommand::Decline(number) => return self.decline(number),
            ChatCommand::Say { to, text } => self.say(to, &text, text.clone()),
            ChatCommand::SendFile { to, name, content } => {
                let file = SharedFile { name, content };
                match file.to_text() {
                    Ok(text) => self.say(to, &text, file.label()),
                    Err(why) => {
                        ChatEvent::NotSent { to, text: String::new(), why, is_early: false }
                    }
                }
            }
            ChatCommand::Cancel { to } => self.cancel(to.as_deref()),
            ChatCommand::SetGroup { name, members } => {
                let set = self.contacts.set_group(&name, &members, &self.others());
                self.store_contacts();
                let what = if members.is_empty() { "forgotten" } else { "set" };
                done(set, &format!("the group {name} is {what}"))
            }
            ChatCommand::Verify { name, number } => self.verify(&name, number.as_deref()),
            ChatCommand::Trust(name) => {
                let found = self.key_of(&name).map(|_| self.contacts.trust(&name, false));
                self.store_contacts();
                done(found, &format!("the key of {name} is accepted, and not verified"))
            }
            ChatCommand::Invite(name) => self.invite(name, NameBinding::Invited),
            ChatCommand::InviteAnyName(name) => self.invite(name, NameBinding::Any),
            ChatCommand::Remove(name) => {
                let removed = self.client.remove(now, &name).map_err(|error| error.to_string());
                done(removed, &format!("{name} is removed with the next epoch"))
            }
            ChatCommand::AddAdministrator(name) => {
                let added = self.client.add_administrator(now, &name);
                let text = format!("{name} is an administrator from the next epoch on");
                done(added.map_err(|error| error.to_string()), &text)
            }
            ChatCommand::RemoveAdministrator(name) => {
                let removed = self.client.remove_administrator(now, &name);
                let text = format!("{name} will be no administrator any more");
                done(removed.map_err(|error| error.to_string()), &text)
            }
            ChatCommand::HandOver(name) => {
                let handed = self.client.hand_over(now, &name);
                let text = format!("{name} becomes an administrator, and then replaces you");
                done(handed.map_err(|error| error.to_string()), &text)
            }
            ChatCommand::MoveProxy(to) => {
                let text = format!("{} is announced to all members", to.address);
                done(self.client.move_proxy(now, to).map_err(|error| error.to_string()), &text)
            }
            ChatCommand::Export => match self.client.export() {
                Some(exported) => ChatEvent::Exported(exported.to_vec()),
                None => ChatEvent::NotDone("there is no epoch yet: nothing to export".into()),
            },
            ChatCommand::Import(exported) => {
                let imported = self.client.import(now, &exported);
                done(imported.map_err(|error| error.to_string()), "the members are imported")
            }
            ChatCommand::CompareList(exported) => match self.client.compare_list(&exported) {
                Ok(difference) => ChatEvent::ListCompared(difference),
                Err(error) => ChatEvent::NotDone(error.to_string()),
            },
            ChatCommand::ReplaceList(exported) => {
                let replaced = self.client.replace_list(now, &exported);
                let text = "the list of members is replaced";
                done(replaced.map_err(|error| error.to_string()), text)
            }
            ChatCommand::Leave => {
                let left = self.client.leave(now).map_err(|error| error.to_string());
                let text = "the administrators are told that you leave, in each connection until \
                            one of them has removed you";
                done(left, text)
            }
        };
        self.answers.push_back(ChatAnswer { event, needs_files });
    }

    /// Sends a text, which is shown as `label`, to each receiver.
    fn say(&mut self, to: String, text: &str, label: String) -> ChatEvent {
        // What can be entered again.
        let entered = if label == text { label.clone() } else { String::new() };
        let not_sent =
            |to, why, is_early| ChatEvent::NotSent { to, text: entered.clone(), why, is_early };
        let status = self.client.status();
        if let Some(reason) = status.waiting_for {
            let error = MixClientSendError::Waiting(reason);
            return not_sent(to, error.to_string(), true);
        }
        let recipients = match self.contacts.recipients(&to, &status.others) {
            Ok(recipients) => recipients,
            Err(why) => return not_sent(to, why, false),
        };
        let mut messages = Vec::new();
        for name in recipients {
            match self.client.send(&name, text) {
                Ok(id) => messages.push(QueuedMessage { id: id.0, to: name }),
                Err(error) if messages.is_empty() => {
                    let is_early = matches!(error, MixClientSendError::Waiting(_));
                    return not_sent(to, error.to_string(), is_early);
                }
                Err(error) => {
                    let text = format!("not sent to {name}: {error}");
                    let event = ChatEvent::Warning(text);
                    self.answers.push_back(ChatAnswer { event, needs_files: false });
                }
            }
        }
        self.remember(true, &to, ContactTrust::Seen, &label);
        ChatEvent::Queued { to, messages, text: label }
    }

    fn cancel(&mut self, to: Option<&str>) -> ChatEvent {
        let recipients = match to {
            None | Some(ALL) => vec![None],
            Some(to) => match self.contacts.cancelled(to, &self.others()) {
                Ok(recipients) => recipients.into_iter().map(Some).collect(),
                Err(why) => return ChatEvent::NotDone(why),
            },
        };
        let mut all = CancelledChatMessages::default();
        for to in recipients {
            let CancelledChatMessages { dropped, left } = self.client.cancel(to.as_deref());
            all.dropped.extend(dropped);
            all.left.extend(left);
        }
        ChatEvent::Cancelled(all)
    }

    fn verify(&mut self, name: &str, entered: Option<&str>) -> ChatEvent {
        let number = match self.key_of(name) {
            Ok(key) => self.client.safety_number(&key),
            Err(why) => return ChatEvent::NotDone(why),
        };
        let Some(entered) = entered else {
            let is_verified = self.contacts.is_verified(name);
            let (name, number) = (name.to_owned(), number.to_string());
            return ChatEvent::SafetyNumber { name, number, is_verified };
        };
        if !number.matches(entered) {
            return ChatEvent::NotDone(format!(
                "this is not the number of {name} and you: read it again. If it stays different, \
                 one of you has a false key: do not trust this conversation"
            ));
        }
        self.contacts.trust(name, true);
        self.store_contacts();
        ChatEvent::Done(format!("{name} is verified"))
    }

    fn key_of(&self, name: &str) -> Result<keys::IdentityPublicKey, String> {
        let mut others = self.client.others();
        let found = others.find(|(_, other)| other.as_str() == name);
        found.map(|(key, _)| *key).ok_or_else(|| format!("no member has the name {name}"))
    }

    fn invite(&mut self, name: MemberName, binding: NameBinding) -> ChatEvent {
        match self.client.invite(self.now(), name.clone(), binding, INVITATION_LASTS) {
            Ok(invitation) => ChatEvent::Invitation { name, code: invitation.code().to_string() },
            Err(error) => ChatEvent::NotDone(error.to_string()),
        }
    }

    fn accept(&mut self, number: u32) {
        match self.offers.accept(number) {
            Ok(file) => self.output.save(number, file),
            Err(why) => self.output.report(ChatEvent::Warning(why.to_string())),
        }
    }

    fn decline(&mut self, number: u32) {
        if let Err(why) = self.offers.decline(number) {
            return self.output.report(ChatEvent::Warning(why.to_string()));
        }
        self.write_offers();
        let event = ChatEvent::Note(format!("file {number} is dropped"));
        self.answers.push_back(ChatAnswer { event, needs_files: true });
    }

    /// The names of the other members.
    fn others(&self) -> Vec<String> {
        self.client.others().map(|(_, name)| name.to_string()).collect()
    }
}
