//! The simplex method of textbooks: a dense tableau, two phases, Bland's rule. Slow and simple, and
//! independent of the crate's solver.

/// How a row's left side relates to its right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    AtMost,
}

/// A row: coefficients, relation and right side.
pub(crate) type Row = (Vec<f64>, Relation, f64);

/// The result of a program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Optimum { value: f64, x: Vec<f64> },
    Infeasible,
    Unbounded,
}

/// Reduced costs and pivots nearer to 0 than these count as 0; costs and rows are scaled to 1.
const NO_COST: f64 = 1e-12;
const NO_PIVOT: f64 = 1e-9;

/// Artificial variables that sum to less than this are rounding, and the program is feasible.
const FEASIBLE: f64 = 1e-10;

/// Minimises the sum of `costs` times x, subject to `rows` and x >= 0.
pub(crate) fn minimise(costs: &[f64], rows: &[Row]) -> Answer {
    let mut tableau = Tableau::new(costs.len(), rows);
    let (real, width) = (tableau.real, tableau.real + rows.len());
    let artificial: Vec<f64> = (0..width).map(|j| if j < real { 0.0 } else { 1.0 }).collect();
    assert!(tableau.descend(&artificial, width), "a sum of what is not negative is bounded");
    if tableau.value(&artificial) > FEASIBLE {
        return Answer::Infeasible;
    }
    tableau.drop_artificials();
    let scale = costs.iter().fold(0.0, |most: f64, cost| most.max(cost.abs()));
    let mut scaled = vec![0.0; width];
    if scale > 0.0 {
        scaled.iter_mut().zip(costs).for_each(|(to, cost)| *to = cost / scale);
    }
    if !tableau.descend(&scaled, real) {
        return Answer::Unbounded;
    }
    let mut x = vec![0.0; width];
    for (row, basic) in tableau.rows.iter().zip(&tableau.basis) {
        x[*basic] = row[width];
    }
    x.truncate(costs.len());
    Answer::Optimum { value: dot(costs, &x), x }
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Columns: the variables, a slack for each inequality, an artificial for each row, the right side.
struct Tableau {
    rows: Vec<Vec<f64>>,
    /// The rows before any pivot.
    given: Vec<Vec<f64>>,
    basis: Vec<usize>,
    /// How many columns are not artificial.
    real: usize,
}

impl Tableau {
    fn new(variables: usize, rows: &[Row]) -> Self {
        let slacks = rows.iter().filter(|row| row.1 == Relation::AtMost).count();
        let real = variables + slacks;
        let mut slack = variables;
        let filled = rows.iter().enumerate().map(|(place, (left, relation, right))| {
            let mut row = left.clone();
            row.resize(real + rows.len() + 1, 0.0);
            if *relation == Relation::AtMost {
                row[slack] = 1.0;
                slack += 1;
            }
            let scale = left.iter().fold(right.abs(), |most, value| most.max(value.abs()));
            let sign = if *right < 0.0 { -1.0 } else { 1.0 };
            *row.last_mut().unwrap() = *right;
            // A row of zeros is as good at any scale. The slack's own unit does not matter.
            let scale = if scale > 0.0 { scale } else { 1.0 };
            for value in &mut row {
                *value *= sign / scale;
            }
            if *relation == Relation::AtMost {
                row[slack - 1] = sign;
            }
            row[real + place] = 1.0;
            row
        });
        let rows: Vec<Vec<f64>> = filled.collect();
        Self { given: rows.clone(), basis: (real..real + rows.len()).collect(), real, rows }
    }

    /// Pivots until no column below `allowed` has a negative reduced cost. False if the program is
    /// unbounded.
    fn descend(&mut self, costs: &[f64], allowed: usize) -> bool {
        for _ in 0..10 {
            let Some(pivots) = self.pivot_by_bland(costs, allowed) else { return false };
            if pivots == 0 {
                break;
            }
            // Many pivots have rounded much: look again from the same basis, reckoned afresh.
            self.refresh();
        }
        true
    }

    /// Pivots on the first column of negative reduced cost and the first of tied rows each time
    /// (Bland). The number of pivots, or `None` if the program is unbounded.
    fn pivot_by_bland(&mut self, costs: &[f64], allowed: usize) -> Option<usize> {
        for pivots in 0..1_000_000 {
            let entering = (0..allowed).find(|j| {
                let basic = self.rows.iter().zip(&self.basis);
                let paid: f64 = basic.map(|(row, basic)| costs[*basic] * row[*j]).sum();
                !self.basis.contains(j) && costs[*j] - paid < -NO_COST
            });
            let Some(entering) = entering else { return Some(pivots) };
            let mut leaving: Option<(f64, usize)> = None;
            for (i, row) in self.rows.iter().enumerate().filter(|(_, row)| row[entering] > NO_PIVOT)
            {
                let ratio = row.last().unwrap().max(0.0) / row[entering];
                if leaving.is_none_or(|(least, of)| {
                    let tied = (ratio - least).abs() <= 1e-14;
                    if tied { self.basis[i] < self.basis[of] } else { ratio < least }
                }) {
                    leaving = Some((ratio, i));
                }
            }
            self.pivot(leaving?.1, entering);
        }
        panic!("Bland's rule does not cycle");
    }

    /// The tableau of the same basis, from the rows as they were given.
    fn refresh(&mut self) {
        let mut left = std::mem::take(&mut self.basis);
        self.rows.clone_from(&self.given);
        self.basis = vec![usize::MAX; self.rows.len()];
        while !left.is_empty() {
            // The largest pivot there is rounds the least.
            let open: Vec<usize> =
                (0..self.rows.len()).filter(|i| self.basis[*i] == usize::MAX).collect();
            let pairs = open.iter().flat_map(|i| (0..left.len()).map(move |place| (*i, place)));
            let size = |(i, place): &(usize, usize)| self.rows[*i][left[*place]].abs();
            let (row, place) = pairs.max_by(|a, b| size(a).total_cmp(&size(b))).unwrap();
            self.pivot(row, left.swap_remove(place));
        }
    }

    fn pivot(&mut self, leaving: usize, entering: usize) {
        let by = self.rows[leaving][entering];
        self.rows[leaving].iter_mut().for_each(|value| *value /= by);
        let pivot = self.rows[leaving].clone();
        for (_, row) in self.rows.iter_mut().enumerate().filter(|(i, _)| *i != leaving) {
            let factor = row[entering];
            if factor != 0.0 {
                row.iter_mut().zip(&pivot).for_each(|(value, by)| *value -= factor * by);
                row[entering] = 0.0;
            }
        }
        self.basis[leaving] = entering;
    }

    /// Takes artificial variables out of the basis. Removes a row if no other variable can replace
    /// its own: it is redundant.
    fn drop_artificials(&mut self) {
        let mut redundant = Vec::new();
        for i in (0..self.rows.len()).rev() {
            if self.basis[i] < self.real {
                continue;
            }
            let size = |j: &usize| self.rows[i][*j].abs();
            let most = (0..self.real).max_by(|a, b| size(a).total_cmp(&size(b)));
            if let Some(entering) = most.filter(|j| size(j) > NO_PIVOT) {
                self.pivot(i, entering);
            } else {
                // The given row of this artificial follows from the others.
                redundant.push(self.basis.remove(i) - self.real);
                self.rows.remove(i);
            }
        }
        let mut place = 0..;
        self.given.retain(|_| !redundant.contains(&place.next().unwrap_or(0)));
    }

    fn value(&self, costs: &[f64]) -> f64 {
        let basic = self.rows.iter().zip(&self.basis);
        basic.map(|(row, basic)| costs[*basic] * row.last().unwrap()).sum()
    }
}
