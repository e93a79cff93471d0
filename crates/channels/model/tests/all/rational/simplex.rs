//! The simplex method over whole numbers: a tableau with one common denominator, so that each
//! division is without a rest (Edmonds; Bareiss 1968), two phases, Bland's rule.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero};

/// How a row's left side relates to its right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    AtMost,
}

/// A row: coefficients, relation and right side, which is not negative.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) left: Vec<BigRational>,
    pub(crate) relation: Relation,
    pub(crate) right: BigRational,
}

/// The least sum of `costs` times x, subject to `rows` and x >= 0; `None` if nothing keeps the
/// rows.
pub(crate) fn minimise(costs: &[BigRational], rows: &[Row]) -> Option<BigRational> {
    let mut tableau = Tableau::new(costs, rows);
    tableau.descend(Cost::Artificial);
    if !tableau.cost(Cost::Artificial).last().expect("the right side").is_zero() {
        return None;
    }
    tableau.drop_artificials();
    tableau.descend(Cost::Given);
    let value = -tableau.cost(Cost::Given).last().expect("the right side");
    Some(BigRational::new(value, &tableau.denominator * &tableau.cost_unit))
}

/// The costs to minimise.
#[derive(Clone, Copy)]
enum Cost {
    /// The sum of the artificial variables.
    Artificial,
    /// The given costs.
    Given,
}

/// Each entry is a numerator over `denominator`. Columns: the variables, a slack for each
/// inequality, the right side; artificial variables are not written down, as none comes back.
struct Tableau {
    /// The rows, then the reduced costs for both [`Cost`]s.
    rows: Vec<Vec<BigInt>>,
    denominator: BigInt,
    /// What the costs were multiplied by to be whole.
    cost_unit: BigInt,
    /// The basic variable of each row; `None` for an artificial one.
    basis: Vec<Option<usize>>,
}

impl Tableau {
    fn new(costs: &[BigRational], rows: &[Row]) -> Self {
        let slacks = rows.iter().filter(|row| row.relation == Relation::AtMost).count();
        let width = costs.len() + slacks + 1;
        let mut next_slack = costs.len();
        let mut basis = Vec::new();
        let mut tableau: Vec<Vec<BigInt>> = Vec::new();
        for row in rows {
            assert!(!row.right.is_negative(), "a right side is not negative");
            let given = row.left.iter().chain([&row.right]);
            let (mut whole, _) = whole(&given.cloned().collect::<Vec<_>>());
            let right = whole.pop().expect("the right side");
            whole.resize(width, BigInt::zero());
            whole[width - 1] = right;
            basis.push((row.relation == Relation::AtMost).then_some(next_slack));
            if row.relation == Relation::AtMost {
                whole[next_slack] = BigInt::one();
                next_slack += 1;
            }
            tableau.push(whole);
        }
        let mut artificial = vec![BigInt::zero(); width];
        for (row, _) in tableau.iter().zip(&basis).filter(|(_, basic)| basic.is_none()) {
            artificial.iter_mut().zip(row).for_each(|(cost, value)| *cost -= value);
        }
        let (mut given, cost_unit) = whole(costs);
        given.resize(width, BigInt::zero());
        tableau.extend([artificial, given]);
        Self { rows: tableau, denominator: BigInt::one(), cost_unit, basis }
    }

    fn cost(&self, of: Cost) -> &[BigInt] {
        let place = match of {
            Cost::Artificial => 0,
            Cost::Given => 1,
        };
        &self.rows[self.basis.len() + place]
    }

    /// Pivots until no reduced cost is negative, on the first that is, and the first of tied rows.
    fn descend(&mut self, of: Cost) {
        loop {
            let costs = self.cost(of);
            let right = costs.len() - 1;
            let Some(entering) = costs[..right].iter().position(Signed::is_negative) else {
                return;
            };
            let positive = (0..self.basis.len()).filter(|i| self.rows[*i][entering].is_positive());
            let leaving = positive.min_by(|a, b| {
                let (a_row, b_row) = (&self.rows[*a], &self.rows[*b]);
                let ratios =
                    (&a_row[right] * &b_row[entering]).cmp(&(&b_row[right] * &a_row[entering]));
                ratios.then(self.basis[*a].cmp(&self.basis[*b]))
            });
            self.pivot(leaving.expect("no program of the paper is unbounded"), entering);
        }
    }

    /// Takes artificial variables out of the basis, all of which are 0. A row of zeros, which
    /// follows from the others, stays as it is.
    fn drop_artificials(&mut self) {
        for i in 0..self.basis.len() {
            let real = self.rows[i].len() - 1;
            if self.basis[i].is_some() {
                continue;
            }
            if let Some(entering) = self.rows[i][..real].iter().position(|value| !value.is_zero()) {
                if self.rows[i][entering].is_negative() {
                    self.rows[i].iter_mut().for_each(|value| *value = -&*value);
                }
                self.pivot(i, entering);
            }
        }
    }

    fn pivot(&mut self, leaving: usize, entering: usize) {
        let pivot = self.rows[leaving].clone();
        for (_, row) in self.rows.iter_mut().enumerate().filter(|(i, _)| *i != leaving) {
            let factor = row[entering].clone();
            for (value, of_pivot) in row.iter_mut().zip(&pivot) {
                let scaled = &*value * &pivot[entering] - &factor * of_pivot;
                *value = scaled / &self.denominator;
            }
        }
        self.denominator.clone_from(&pivot[entering]);
        self.basis[leaving] = Some(entering);
    }
}

/// The least multiples of these fractions that are whole numbers, and by what they were multiplied.
fn whole(values: &[BigRational]) -> (Vec<BigInt>, BigInt) {
    let unit = values.iter().fold(BigInt::one(), |unit, value| unit.lcm(value.denom()));
    let multiples = values.iter().map(|value| value.numer() * (&unit / value.denom()));
    (multiples.collect(), unit)
}
