//! Whose run runs next: the first one of the account that was served least recently. So while
//! several accounts have runs that wait, they take turns, however many runs each has. Pure.

use std::collections::BTreeMap;

/// The turns of accounts. After a restart, nobody has been served.
#[derive(Clone, Debug)]
pub(crate) struct FairQueue<A> {
    /// When each account was served last, as a count of those served.
    served: BTreeMap<A, u64>,
    count: u64,
}

impl<A> Default for FairQueue<A> {
    fn default() -> Self {
        Self { served: BTreeMap::new(), count: 0 }
    }
}

impl<A: Ord + Copy> FairQueue<A> {
    /// The place of the run that runs next, among the accounts of all runs that wait, the longest
    /// waiting first.
    pub(crate) fn next(&self, waiting: &[A]) -> Option<usize> {
        let last = |account: &A| self.served.get(account).copied().unwrap_or(0);
        // Of several minima it is the first.
        (0..waiting.len()).min_by_key(|&place| last(&waiting[place]))
    }

    /// Notes that a run of an account runs.
    pub(crate) fn serve(&mut self, account: A) {
        self.count += 1;
        self.served.insert(account, self.count);
    }

    /// Forgets an account that is gone.
    pub(crate) fn forget(&mut self, account: A) {
        self.served.remove(&account);
    }

    /// The places of all runs that wait, in the order in which they run if no others come.
    pub(crate) fn order(&self, waiting: &[A]) -> Vec<usize> {
        let mut turns: BTreeMap<A, (u64, Vec<usize>)> = BTreeMap::new();
        for (place, account) in waiting.iter().enumerate().rev() {
            let last = self.served.get(account).copied().unwrap_or(0);
            turns.entry(*account).or_insert((last, Vec::new())).1.push(place);
        }
        // Each account has its runs in rounds. In a round, accounts are in the order of their last
        // turns, and those without one in the order of their first runs.
        let mut accounts: Vec<(u64, Vec<usize>)> = turns.into_values().collect();
        accounts.sort_by_key(|(last, places)| (*last, places.last().copied()));
        let mut order = Vec::with_capacity(waiting.len());
        while order.len() < waiting.len() {
            order.extend(accounts.iter_mut().filter_map(|(_, places)| places.pop()));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Numbers that look random, from a seed.
    fn numbers(mut state: u64) -> impl FnMut(usize) -> usize {
        move |below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 33).unwrap() % below
        }
    }

    #[test]
    fn accounts_that_have_work_are_served_equally_often() {
        for seed in 0..200 {
            let mut random = numbers(seed);
            let accounts = 2 + random(20);
            let (mut queue, mut waiting) = (FairQueue::default(), Vec::new());
            let mut served: BTreeMap<usize, u32> = BTreeMap::new();
            for _ in 0..500 {
                // Some request much more than others, and everybody has something that waits. The
                // queue is bounded, as each turn goes through all of it.
                for account in 0..accounts {
                    let asks_more = waiting.len() < 100 && random(3) == 0;
                    let extra = if asks_more { random(1 + account) } else { 0 };
                    let missing = usize::from(!waiting.contains(&account));
                    waiting.extend(vec![account; missing + extra]);
                }
                let account = waiting.remove(queue.next(&waiting).unwrap());
                queue.serve(account);
                *served.entry(account).or_default() += 1;
            }
            let counts: Vec<u32> =
                (0..accounts).map(|it| served.get(&it).copied().unwrap_or(0)).collect();
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 1, "seed {seed}: {counts:?}");
        }
    }

    #[test]
    fn each_account_has_its_runs_in_their_order() {
        let mut queue = FairQueue::default();
        let waiting = ["a", "a", "b", "a", "c"];
        assert_eq!(queue.order(&waiting), [0, 2, 4, 1, 3]);
        queue.serve("a");
        assert_eq!(queue.next(&waiting), Some(2));
        assert_eq!(FairQueue::<u8>::default().next(&[]), None);
    }

    #[test]
    fn the_order_that_is_shown_is_the_one_in_which_runs_run() {
        for seed in 0..300 {
            let mut random = numbers(seed);
            let mut queue = FairQueue::default();
            for _ in 0..random(10) {
                queue.serve(random(5));
            }
            let waiting: Vec<usize> = (0..random(30)).map(|_| random(5)).collect();
            let shown = queue.order(&waiting);
            let mut left: Vec<(usize, usize)> = waiting.iter().copied().enumerate().collect();
            for place in shown {
                let accounts: Vec<usize> = left.iter().map(|(_, account)| *account).collect();
                let (next, account) = left.remove(queue.next(&accounts).unwrap());
                queue.serve(account);
                assert_eq!(next, place, "seed {seed}: {waiting:?}");
            }
            assert!(left.is_empty());
        }
    }
}
