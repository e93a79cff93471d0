//! Netlists of yosys: what each cell computes, and what is refused.

use sunder_circuit::netlist::{NetlistError, read};
use sunder_circuit::{Circuit, FIRST_INPUT};

use crate::common::{evaluate, number, random_inputs, value};

/// A module as JSON, with these ports and cells.
fn module(ports: &str, cells: &str) -> String {
    format!("{{\"modules\": {{\"m\": {{\"ports\": {{{ports}}}, \"cells\": {{{cells}}}}}}}}}")
}

fn port(name: &str, direction: &str, first: u32, bits: u32) -> String {
    format!("\"{name}\": {{\"direction\": \"{direction}\", \"bits\": {}}}", nets(first, bits))
}

fn nets(first: u32, bits: u32) -> String {
    format!("{:?}", (first..first + bits).collect::<Vec<u32>>())
}

/// A cell of which `Y` is the output.
fn cell(kind: &str, parameters: &[(&str, u32)], connections: &[(&str, String)]) -> String {
    let parameters: Vec<String> =
        parameters.iter().map(|(name, value)| format!("\"{name}\": \"{value:032b}\"")).collect();
    let bits: Vec<String> =
        connections.iter().map(|(name, bits)| format!("\"{name}\": {bits}")).collect();
    format!(
        "\"$c\": {{\"type\": \"{kind}\", \"parameters\": {{{}}}, \
         \"port_directions\": {{\"Y\": \"output\", \"A\": \"input\"}}, \"connections\": {{{}}}}}",
        parameters.join(", "),
        bits.join(", ")
    )
}

/// A circuit of one cell with the inputs A, B, and so on, of these numbers of bits.
fn circuit_of(kind: &str, parameters: &[(&str, u32)], inputs: &[(&str, u32)], y: u32) -> Circuit {
    let mut first = 10;
    let (mut ports, mut connections) = (Vec::new(), Vec::new());
    for &(name, bits) in inputs {
        ports.push(port(name, "input", first, bits));
        connections.push((name, nets(first, bits)));
        first += bits;
    }
    ports.push(port("Y", "output", first, y));
    connections.push(("Y", nets(first, y)));
    let text = module(&ports.join(", "), &cell(kind, parameters, &connections));
    read(text.as_bytes()).unwrap_or_else(|error| panic!("{kind}: {error}: {text}"))
}

#[test]
fn gates_of_single_bits_compute_what_their_names_say() {
    type Gate = fn([bool; 4]) -> bool;
    let gates: [(&str, &[&str], Gate); 16] = [
        ("$_BUF_", &["A"], |[a, ..]| a),
        ("$_NOT_", &["A"], |[a, ..]| !a),
        ("$_AND_", &["A", "B"], |[a, b, ..]| a && b),
        ("$_NAND_", &["A", "B"], |[a, b, ..]| !(a && b)),
        ("$_OR_", &["A", "B"], |[a, b, ..]| a || b),
        ("$_NOR_", &["A", "B"], |[a, b, ..]| !(a || b)),
        ("$_XOR_", &["A", "B"], |[a, b, ..]| a ^ b),
        ("$_XNOR_", &["A", "B"], |[a, b, ..]| a == b),
        ("$_ANDNOT_", &["A", "B"], |[a, b, ..]| a && !b),
        ("$_ORNOT_", &["A", "B"], |[a, b, ..]| a || !b),
        ("$_MUX_", &["A", "B", "S"], |[a, b, s, _]| if s { b } else { a }),
        ("$_NMUX_", &["A", "B", "S"], |[a, b, s, _]| !(if s { b } else { a })),
        ("$_AOI3_", &["A", "B", "C"], |[a, b, c, _]| !((a && b) || c)),
        ("$_OAI3_", &["A", "B", "C"], |[a, b, c, _]| !((a || b) && c)),
        ("$_AOI4_", &["A", "B", "C", "D"], |[a, b, c, d]| !((a && b) || (c && d))),
        ("$_OAI4_", &["A", "B", "C", "D"], |[a, b, c, d]| !((a || b) && (c || d))),
    ];
    for (kind, ports, function) in gates {
        let inputs: Vec<(&str, u32)> = ports.iter().map(|&port| (port, 1)).collect();
        let circuit = circuit_of(kind, &[], &inputs, 1);
        for bits in 0..16_u8 {
            let bits = [0, 1, 2, 3].map(|i| bits >> i & 1 == 1);
            assert_eq!(circuit.evaluate(&bits[..ports.len()]), [function(bits)], "{kind} {bits:?}");
        }
    }
}

/// The number that a value is.
fn integer(value: u64, bits: u32, is_signed: bool) -> i128 {
    let value = i128::from(value);
    if is_signed && bits > 0 && value >> (bits - 1) == 1 { value - (1 << bits) } else { value }
}

/// What yosys' manual says that an operation computes; `None` where it leaves that open.
fn expected(kind: &str, a: i128, b: i128, [a_bits, b_bits, y_bits]: [u32; 3]) -> Option<i128> {
    let shifted = |by: i128| match by {
        0..64 => a >> by,
        64.. => a >> 64,
        -63..0 => a << -by,
        _ => 0,
    };
    let of_a = |value: i128, bits: u32| value & ((1 << bits) - 1);
    let long = a_bits.max(y_bits);
    Some(match kind {
        "$not" => !a,
        "$pos" => a,
        "$neg" => -a,
        "$reduce_and" => i128::from(of_a(a, a_bits) == (1 << a_bits) - 1),
        "$reduce_or" | "$reduce_bool" => i128::from(a != 0),
        "$reduce_xor" => i128::from(of_a(a, a_bits).count_ones() % 2),
        "$reduce_xnor" => i128::from(1 - of_a(a, a_bits).count_ones() % 2),
        "$logic_not" => i128::from(a == 0),
        "$and" => a & b,
        "$or" => a | b,
        "$xor" => a ^ b,
        "$xnor" => !(a ^ b),
        "$add" => a + b,
        "$sub" => a - b,
        "$mul" => a * b,
        "$div" => a.checked_div(b)?,
        "$mod" => a.checked_rem(b)?,
        "$shl" | "$sshl" => {
            if b < 64 {
                a << b
            } else {
                0
            }
        }
        // Bits of A's extension are shifted, and zeros come in.
        "$shr" | "$shift" | "$shiftx" => {
            let extended = of_a(a, long);
            match b {
                0..64 => extended >> b,
                64.. => 0,
                _ => extended << (-b).min(64),
            }
        }
        "$sshr" => shifted(b),
        "$lt" => i128::from(a < b),
        "$le" => i128::from(a <= b),
        "$gt" => i128::from(a > b),
        "$ge" => i128::from(a >= b),
        "$eq" | "$eqx" => i128::from(a == b),
        "$ne" | "$nex" => i128::from(a != b),
        "$logic_and" => i128::from(a != 0 && b != 0),
        "$logic_or" => i128::from(a != 0 || b != 0),
        _ => unreachable!("{kind} with {b_bits} bits"),
    })
}

const UNARY: [&str; 9] = [
    "$not",
    "$pos",
    "$neg",
    "$reduce_and",
    "$reduce_or",
    "$reduce_bool",
    "$reduce_xor",
    "$reduce_xnor",
    "$logic_not",
];
const BINARY: [&str; 24] = [
    "$and",
    "$or",
    "$xor",
    "$xnor",
    "$add",
    "$sub",
    "$mul",
    "$div",
    "$mod",
    "$shl",
    "$sshl",
    "$shr",
    "$sshr",
    "$shift",
    "$shiftx",
    "$lt",
    "$le",
    "$gt",
    "$ge",
    "$eq",
    "$eqx",
    "$ne",
    "$logic_and",
    "$logic_or",
];

#[test]
fn operations_on_numbers_compute_what_the_manual_of_yosys_says() {
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..40 {
        for kind in UNARY.into_iter().chain(BINARY) {
            let is_unary = UNARY.contains(&kind);
            let [a_bits, y_bits] = [rng.u32(1..10), rng.u32(1..14)];
            let b_bits = if is_unary { 0 } else { rng.u32(1..10) };
            let is_signed = round % 2 == 1;
            // The distance of a shift has a sign of its own, and only `$shift` heeds it. `$shiftx`
            // takes the bits of A as they are.
            let is_shift = kind.starts_with("$sh") || kind.starts_with("$ssh");
            let a_signed = is_signed && kind != "$shiftx";
            let b_signed = if is_shift { kind.contains("shift") && rng.bool() } else { is_signed };
            let parameters = [("A_SIGNED", u32::from(a_signed)), ("B_SIGNED", u32::from(b_signed))];
            let inputs: &[(&str, u32)] =
                if is_unary { &[("A", a_bits)] } else { &[("A", a_bits), ("B", b_bits)] };
            let circuit = circuit_of(kind, &parameters, inputs, y_bits);
            let pairs: Vec<(u64, u64)> =
                (0..64).map(|_| (rng.u64(..1 << a_bits), rng.u64(..1 << b_bits))).collect();
            let bits: Vec<Vec<bool>> = pairs
                .iter()
                .map(|&(a, b)| [number(a, a_bits), number(b, b_bits)].concat())
                .collect();
            for ((a, b), output) in pairs.into_iter().zip(evaluate(&circuit, &bits)) {
                let (a, b) = (integer(a, a_bits, a_signed), integer(b, b_bits, b_signed));
                let Some(y) = expected(kind, a, b, [a_bits, b_bits, y_bits]) else { continue };
                let y = u64::try_from(y & ((1 << y_bits) - 1)).unwrap();
                assert_eq!(
                    value(&output),
                    y,
                    "{kind}: {a} and {b} of {a_bits} and {b_bits} bits to {y_bits}, {is_signed}"
                );
            }
        }
    }
}

#[test]
fn values_are_selected() {
    let mux = circuit_of("$mux", &[], &[("A", 3), ("B", 3), ("S", 1)], 3);
    assert_eq!(value(&mux.evaluate(&number(0b0_010_101, 7))), 0b101);
    assert_eq!(value(&mux.evaluate(&number(0b1_010_101, 7))), 0b010);
    let pmux = circuit_of("$pmux", &[], &[("A", 2), ("B", 6), ("S", 3)], 2);
    for (select, expected) in [(0b000, 3), (0b001, 0), (0b010, 1), (0b100, 2)] {
        assert_eq!(value(&pmux.evaluate(&number(select << 8 | 0b10_01_00_11, 11))), expected);
    }
    let bmux = circuit_of("$bmux", &[], &[("A", 8), ("S", 2)], 2);
    for select in 0..4 {
        assert_eq!(
            value(&bmux.evaluate(&number(select << 8 | 0b11_00_01_10, 10))),
            [2, 1, 0, 3][usize::try_from(select).unwrap()]
        );
    }
}

#[test]
fn a_memory_that_nothing_writes_is_a_table() {
    let entries = (0..5_u32).rev().map(|i| format!("{:03b}", (3 * i + 1) % 8));
    let init = entries.collect::<Vec<String>>().concat();
    let memory = |size: u32, more: &str| {
        format!(
            "\"$m\": {{\"type\": \"$mem_v2\", \"parameters\": {{\"WIDTH\": 3, \"SIZE\": {size}, \
             \"ABITS\": 4, \"OFFSET\": 0, \"RD_PORTS\": 2, \"WR_PORTS\": 0, {more} \"INIT\": \
             \"{init}\"}}, \"port_directions\": {{\"RD_DATA\": \"output\"}}, \"connections\": \
             {{\"RD_ADDR\": {}, \"RD_DATA\": {}}}}}",
            nets(10, 8),
            nets(20, 6)
        )
    };
    let ports = [port("a", "input", 10, 8), port("d", "output", 20, 6)].join(",");
    let circuit = read(module(&ports, &memory(5, "")).as_bytes()).unwrap();
    for first in 0..5_u64 {
        let second = 4 - first;
        let data = value(&circuit.evaluate(&number(second << 4 | first, 8)));
        let entry = |i: u64| (3 * i + 1) % 8;
        assert_eq!(data, entry(second) << 3 | entry(first));
    }
    let refused = |text: String| read(module(&ports, &text).as_bytes()).unwrap_err();
    let kind = "$mem_v2".to_owned();
    let cell = "cell $m".to_owned();
    assert_eq!(
        refused(memory(5, "\"RD_CLK_ENABLE\": \"01\",")),
        NetlistError::Sequential { cell: cell.clone(), kind: kind.clone() }
    );
    assert_eq!(refused(memory(6, "")), NetlistError::UnknownCell { cell, kind });
}

#[test]
fn cells_may_stand_in_any_order_and_constants_anywhere() {
    let ports = "\"a\": {\"direction\": \"input\", \"bits\": [2]}, \
                 \"b\": {\"direction\": \"input\", \"bits\": [3]}, \
                 \"y\": {\"direction\": \"output\", \"bits\": [9, \"1\", \"x\", 2, 9]}";
    let gate = |name: &str, kind: &str, a: &str, b: &str, y: u32| {
        format!(
            "\"{name}\": {{\"hide_name\": 1, \"type\": \"{kind}\", \"port_directions\": {{\"A\": \
             \"input\", \"B\": \"input\", \"Y\": \"output\"}}, \"connections\": {{\"A\": [{a}], \
             \"B\": [{b}], \"Y\": [{y}]}}}}"
        )
    };
    let cells = [gate("last", "$_XOR_", "8", "\"1\"", 9), gate("first", "$_AND_", "2", "3", 8)];
    let circuit = read(module(ports, &cells.join(", ")).as_bytes()).unwrap();
    assert_eq!((circuit.input_values(), circuit.output_values()), (&[1, 1][..], &[5][..]));
    for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
        let y = !(a & b);
        assert_eq!(circuit.evaluate(&[a, b]), [y, true, false, a, y]);
    }
    // A cell that no output needs may be of any type.
    let unused = gate("check", "$assert", "2", "3", 30);
    let text = module(ports, &[&cells[0], &cells[1], &unused[..]].join(", "));
    assert_eq!(read(text.as_bytes()).unwrap(), circuit);
}

#[test]
fn the_top_module_is_read() {
    let of = |name: &str, top: &str, bits: u32| {
        format!(
            "\"{name}\": {{\"attributes\": {{{top}}}, \"ports\": {{{}, {}}}, \"cells\": {{}}}}",
            port("a", "input", 2, bits),
            port("y", "output", 2, bits)
        )
    };
    let both = |first: String, second: String| {
        read(format!("{{\"modules\": {{{first}, {second}}}}}").as_bytes())
    };
    let top = "\"top\": \"00000000000000000000000000000001\"";
    assert_eq!(both(of("m", "", 3), of("n", top, 5)).unwrap().input_values(), [5]);
    assert_eq!(both(of("m", "\"top\": 1", 3), of("n", "", 5)).unwrap().input_values(), [3]);
    assert_eq!(both(of("m", "", 3), of("n", "", 5)), Err(NetlistError::NoTop(2)));
    assert_eq!(both(of("m", top, 3), of("n", top, 5)), Err(NetlistError::NoTop(2)));
}

#[test]
fn what_is_no_circuit_is_refused_with_the_reason() {
    let ports = [port("a", "input", 2, 2), port("y", "output", 4, 1)].join(", ");
    let connections = [("A", "[2]".to_owned()), ("B", "[3]".to_owned()), ("Y", "[4]".to_owned())];
    let of = |kind: &str| module(&ports, &cell(kind, &[], &connections));
    let src = |text: String| {
        let src = "\"attributes\": {\"src\": \"top.v:9.1-9.5|counter.v:4.3-6.6\"}, \"connections\"";
        text.replace("\"connections\"", src)
    };
    let loops = of("$_AND_").replace("[3]", "[4]");
    let twice = module(&port("a", "input", 2, 2).replace("[2, 3]", "[2, 2]"), "");
    let cases = [
        ("", "not a netlist that yosys has written: EOF while parsing a value at line 1"),
        ("[1]", "invalid type"),
        ("{}", "missing field `modules` at line 1"),
        (&of("$_AND_").replace("[2]", "[2, \"q\\n\"]"), "invalid value: string \"q\\n\""),
        (&of("$_AND_").replace("[2]", "[-2]"), "invalid type: integer `-2`"),
        (&of("$_AND_").replace("[2]", "[2.5]"), "invalid type: floating point `2.5`"),
        ("{\"modules\": {}}", "there are 0 modules"),
        (
            &of("$_AND_").replace("\"direction\": \"input\"", "\"direction\": \"inout\""),
            "port a is inout",
        ),
        (&src(of("$dff")), "counter.v:4.3-6.6: cell $c ($dff) keeps a state from one clock cycle"),
        (&of("$_DFF_P_"), "cell $c ($_DFF_P_) keeps a state"),
        (&of("$_DLATCH_N_"), "keeps a state"),
        (&of("$sr"), "keeps a state"),
        (&of("$mem"), "keeps a state"),
        (&of("counter"), "cell $c is an instance of module counter"),
        (&of("$pow"), "cell $c has the type $pow, which is not read here: add `techmap`"),
        (&of("$_MUX4_"), "has the type $_MUX4_"),
        (&of("$shuffle"), "has the type $shuffle"),
        (&of("$mux"), "cell $c ($mux) has no port S"),
        (&of("$_AOI4_"), "cell $c ($_AOI4_) has no port C"),
        (&of("$_AND_").replace("\"A\": [2]", "\"A\": []"), "has no port A"),
        (&loops, "the output of cell $c depends on itself"),
        (&twice, "net 2 is defined twice"),
        (&of("$_AND_").replace("\"Y\": [4]", "\"Y\": [3]"), "net 3 is defined twice"),
        (
            &of("$_AND_").replace("\"Y\": [4]", "\"Y\": [5]"),
            "nothing defines net 4, which output y",
        ),
        (&of("$_AND_").replace("[3]", "[7]"), "nothing defines net 7, which cell $c reads"),
    ];
    for (text, reason) in cases {
        let error = read(text.as_bytes()).map(drop).expect_err(text).to_string();
        assert!(error.contains(reason) && !error.contains('\n'), "{error}: {text}");
    }
}

#[test]
fn a_netlist_of_too_many_gates_is_refused_before_it_takes_memory() {
    let long = vec!["2"; 1 << 14].join(", ");
    let ports = [port("a", "input", 2, 1), port("y", "output", 4, 1)].join(", ");
    for kind in ["$mul", "$div", "$mod"] {
        let connections =
            [("A", format!("[{long}]")), ("B", format!("[{long}]")), ("Y", "[4]".to_owned())];
        let text = module(&ports, &cell(kind, &[], &connections));
        assert_eq!(read(text.as_bytes()), Err(NetlistError::TooManyGates));
    }
}

#[test]
fn changed_netlists_are_refused_or_are_valid() {
    let mut rng = fastrand::Rng::with_seed(3);
    let ports = [port("a", "input", 2, 4), port("b", "input", 6, 4), port("y", "output", 10, 4)];
    let connections = [("A", nets(2, 4)), ("B", nets(6, 4)), ("Y", nets(10, 4))];
    for kind in BINARY {
        let text = module(&ports.join(", "), &cell(kind, &[("A_SIGNED", 1)], &connections));
        for _ in 0..1_000 {
            let mut changed = text.clone().into_bytes();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..changed.len());
                match rng.u8(..3) {
                    0 => changed[at] = *rng.choice(b"0123456789 \"[]{},:ABYS").unwrap(),
                    1 => drop(changed.remove(at)),
                    _ => changed.insert(at, *rng.choice(b"0129 ,[]").unwrap()),
                }
            }
            if let Ok(circuit) = read(&changed) {
                let inputs = random_inputs(&mut rng, circuit.first_gate() - FIRST_INPUT);
                circuit.evaluate_64(&inputs);
            }
        }
    }
}
