//! Recovery of shares from others of a group, some of which lie.

use super::super::message::RecoveryAnswer;
use super::super::output::{RefreshJob, RefreshJobResult};
use super::*;

const EPOCH: u64 = 1;

/// The first server of a group without its shares.
struct Lost {
    setting: Setting,
    recovery: ShareRecovery,
    generator: RandomGenerator,
    jobs: Vec<RefreshJob>,
}

impl Lost {
    /// `knows` is whether it knows the digest of the witnesses.
    fn new(faulty: u8, knows: bool) -> Self {
        let mut generator = RandomGenerator::seeded().unwrap();
        let setting = Setting::new(faulty, 1, &mut generator);
        let group = setting.old.combination().clone();
        let parameters = setting.parameters.clone();
        let digest = knows.then(|| setting.witnesses.digest());
        let recovery =
            ShareRecovery::new(ServerIndex(0), EPOCH, group, parameters, digest, &DELAYS);
        Self { setting, recovery, generator, jobs: Vec::new() }
    }

    /// Returns which servers it asks, and whether for witnesses, too.
    fn poll(&mut self, now: Duration) -> Vec<(ServerIndex, bool)> {
        let mut asked = Vec::new();
        while let Some(output) = self.recovery.poll_output(now) {
            match output {
                RefreshOutput::Send {
                    to: (_, to),
                    message: RefreshMessage::Ask { epoch, witnesses },
                } => {
                    assert_eq!(epoch, EPOCH);
                    asked.push((to, witnesses));
                }
                RefreshOutput::Job(job) => self.jobs.push(job),
                _ => panic!("it asks, and checks"),
            }
        }
        asked
    }

    fn right_answer(&self, from: u8) -> RecoveryAnswer {
        let shares = &self.setting.shares[usize::from(from)];
        let witnesses = Some(&*self.setting.witnesses);
        let group = self.setting.old.combination();
        match answer(EPOCH, witnesses, shares, ServerIndex(0), group) {
            RefreshMessage::Shares(answer) => answer,
            _ => panic!("an answer has shares"),
        }
    }

    /// Lets it handle an answer, and check it.
    fn handle(&mut self, from: u8, answer: &RecoveryAnswer) {
        self.recovery.handle_answer(ServerIndex(from), answer);
        self.poll(Duration::ZERO);
        while let Some(job) = self.jobs.pop() {
            let result: RefreshJobResult = job.run(&mut self.generator).unwrap();
            self.recovery.handle_job(result);
            self.poll(Duration::ZERO);
        }
    }

    fn assert_recovered(&mut self) {
        let (witnesses, shares) = self.recovery.take().expect("it has all shares");
        assert_eq!(witnesses.digest(), self.setting.witnesses.digest());
        let right = &self.setting.shares[0];
        let bytes = |shares: &LabeledShares| {
            shares.iter().map(|(label, it)| (*label, it.to_be_bytes())).collect::<Vec<_>>()
        };
        assert_eq!(bytes(&shares), bytes(right));
    }
}

#[test]
fn f_plus_1_answers_give_all_shares() {
    for faulty in 1..=2 {
        let mut lost = Lost::new(faulty, true);
        let others: Vec<_> = (1..=3 * faulty).map(|i| (ServerIndex(i), true)).collect();
        assert_eq!(lost.poll(Duration::ZERO), others);
        assert_eq!(lost.poll(Duration::ZERO), []);
        for from in 1..=faulty {
            lost.handle(from, &lost.right_answer(from));
            assert!(lost.recovery.take().is_none());
        }
        // The witnesses are known now.
        let others: Vec<_> = others.into_iter().map(|(to, _)| (to, false)).collect();
        assert_eq!(lost.poll(DELAYS.resend), others);
        lost.handle(faulty + 1, &lost.right_answer(faulty + 1));
        lost.assert_recovered();
    }
}

#[test]
fn without_a_digest_f_plus_1_equal_witnesses_are_right() {
    let mut lost = Lost::new(1, false);
    lost.poll(Duration::ZERO);
    let mut wrong = lost.right_answer(1);
    wrong.witnesses.rotate_left(32);
    // As often as it likes.
    lost.handle(1, &wrong);
    lost.handle(1, &wrong);
    lost.handle(2, &lost.right_answer(2));
    assert!(lost.recovery.take().is_none() && lost.jobs.is_empty());
    lost.handle(3, &lost.right_answer(3));
    lost.assert_recovered();
}

#[test]
fn wrong_answers_change_nothing_and_the_server_is_trusted_no_more() {
    let parts: [fn(&mut RecoveryAnswer); 6] = [
        |it| it.epoch += 1,
        |it| it.witnesses.clear(),
        |it| it.shares.clear(),
        |it| {
            let share = it.shares.values_mut().next().unwrap();
            *share.last_mut().unwrap() ^= 1;
        },
        |it| {
            let share = it.shares.values_mut().next().unwrap();
            share.truncate(5);
        },
        |it| {
            let share = it.shares.values_mut().next().unwrap();
            share.fill(0x7f);
        },
    ];
    for (i, change) in parts.iter().enumerate() {
        let mut lost = Lost::new(1, true);
        lost.poll(Duration::ZERO);
        let mut wrong = lost.right_answer(1);
        change(&mut wrong);
        lost.handle(1, &wrong);
        assert!(lost.recovery.take().is_none(), "{i}");
        lost.handle(2, &lost.right_answer(2));
        if i >= 3 {
            // Wrong shares: what it says now is not heard.
            lost.handle(1, &lost.right_answer(1));
            assert!(lost.recovery.take().is_none(), "{i}");
        }
        lost.handle(3, &lost.right_answer(3));
        lost.assert_recovered();
    }
}

#[test]
fn shares_that_a_server_should_not_hold_and_strangers_are_ignored() {
    let mut lost = Lost::new(1, true);
    lost.poll(Duration::ZERO);
    let mut answer = lost.right_answer(1);
    let group = lost.setting.old.combination();
    let lacked = group.labels().find(|&it| !group.holds(ServerIndex(1), it)).unwrap();
    let share = lost.setting.shares[0][&lacked].to_be_bytes();
    answer.shares.insert(lacked, share);
    lost.handle(1, &answer);
    assert!(lost.recovery.take().is_none(), "server 2 does not hold {lacked}");
    let full = lost.right_answer(2);
    lost.handle(0, &full);
    lost.handle(4, &full);
    assert!(lost.recovery.take().is_none());
    lost.handle(2, &full);
    lost.assert_recovered();
}

#[test]
fn an_answer_has_only_shares_that_the_asking_server_should_hold() {
    let lost = Lost::new(2, true);
    let group = lost.setting.old.combination();
    for from in 1..7 {
        let answer = lost.right_answer(from);
        assert_eq!(answer.shares.len(), 10, "C(3f-1, f)");
        assert!(answer.shares.keys().all(|&label| group.holds(ServerIndex(0), label)));
    }
}

#[test]
fn a_result_of_another_recovery_is_ignored() {
    let (mut lost, mut other) = (Lost::new(1, true), Lost::new(1, true));
    other.recovery.handle_answer(ServerIndex(1), &other.right_answer(1));
    other.poll(Duration::ZERO);
    lost.handle(2, &lost.right_answer(2));
    let job = other.jobs.pop().expect("it checks an answer");
    let result = job.run(&mut other.generator).unwrap();
    lost.recovery.handle_job(result);
    assert!(lost.recovery.take().is_none());
    lost.handle(3, &lost.right_answer(3));
    lost.assert_recovered();
}
