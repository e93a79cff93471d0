//! Netlists of yosys, and BLIF.
#![no_main]

use arbitrary::Arbitrary;
use circuit::bristol::{self, BristolFormat};
use circuit::{FIRST_INPUT, file};
use libfuzzer_sys::fuzz_target;

/// The types of cells that are read.
const KINDS: [&str; 32] = [
    "$_AND_",
    "$_ORNOT_",
    "$_AOI4_",
    "$_NMUX_",
    "$not",
    "$neg",
    "$reduce_and",
    "$reduce_xnor",
    "$logic_not",
    "$and",
    "$xnor",
    "$add",
    "$sub",
    "$mul",
    "$div",
    "$mod",
    "$lt",
    "$ge",
    "$eq",
    "$ne",
    "$shl",
    "$shr",
    "$sshr",
    "$shift",
    "$shiftx",
    "$logic_or",
    "$mux",
    "$pmux",
    "$bmux",
    "$mem_v2",
    "$dff",
    "$pow",
];

#[derive(Arbitrary, Debug)]
struct Input {
    /// The bits of two inputs.
    lengths: [u8; 2],
    cells: Vec<Cell>,
    /// Bytes that replace bytes of the text.
    changes: Vec<(u16, u8)>,
    /// A text instead of all this.
    text: Option<Vec<u8>>,
}

/// A cell with inputs A, B, S: bits from nets that are defined, or constants.
#[derive(Arbitrary, Debug)]
struct Cell {
    kind: u8,
    is_signed: [bool; 2],
    a: Vec<u8>,
    b: Vec<u8>,
    s: Vec<u8>,
    y: u8,
    number: u16,
}

fuzz_target!(|input: Input| {
    let text = input.text.clone().unwrap_or_else(|| text(&input));
    let circuit = file::read(&text).map_err(|error| {
        let error = error.to_string();
        assert!(!error.contains('\n'), "{error}");
    });
    let Ok(circuit) = circuit else { return };
    let bits = circuit.first_gate() - FIRST_INPUT;
    if bits > 1 << 12 || circuit.len() > 1 << 16 {
        return;
    }
    let words: Vec<u64> =
        (1..=u64::from(bits)).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let mut text = Vec::new();
    bristol::write(&circuit, BristolFormat::Fashion, &mut text).unwrap();
    assert_eq!(bristol::read(&text).unwrap().evaluate_64(&words), circuit.evaluate_64(&words));
});

fn text(input: &Input) -> Vec<u8> {
    let mut next = 2_u32;
    let mut take = |bits: u32| -> String {
        let nets: Vec<String> = (next..next + bits).map(|net| net.to_string()).collect();
        next += bits;
        format!("[{}]", nets.join(", "))
    };
    let mut ports = Vec::new();
    for (name, bits) in ["a", "b"].iter().zip(input.lengths) {
        let bits = take(bits.into());
        ports.push(format!("\"{name}\": {{\"direction\": \"input\", \"bits\": {bits}}}"));
    }
    let inputs = 2 + input.lengths.map(u32::from).iter().sum::<u32>();
    let mut defined = inputs;
    let mut cells = Vec::new();
    let mut last = "[]".to_owned();
    for (index, cell) in input.cells.iter().enumerate() {
        let bits = |of: &[u8]| {
            let bit = |&it: &u8| match it {
                0 => "\"0\"".to_owned(),
                1 => "\"1\"".to_owned(),
                _ => (2 + u32::from(it) % (defined - 2).max(1)).to_string(),
            };
            format!("[{}]", of.iter().map(bit).collect::<Vec<String>>().join(", "))
        };
        let kind = KINDS[usize::from(cell.kind) % KINDS.len()];
        let output = if kind == "$mem_v2" { "RD_DATA" } else { "Y" };
        let y = u32::from(cell.y % 40);
        last = take(y);
        let [a_signed, b_signed] = cell.is_signed.map(u8::from);
        let (a, b, s, number) = (bits(&cell.a), bits(&cell.b), bits(&cell.s), cell.number);
        cells.push(format!(
            "\"$c{index}\": {{\"type\": \"{kind}\", \"parameters\": {{\"A_SIGNED\": {a_signed}, \
             \"B_SIGNED\": {b_signed}, \"WIDTH\": {y}, \"SIZE\": {}, \"ABITS\": {}, \"INIT\": \
             \"{number:016b}\"}}, \"port_directions\": {{\"{output}\": \"output\"}}, \
             \"connections\": {{\"A\": {a}, \"B\": {b}, \"C\": {b}, \"D\": {a}, \"S\": {s}, \
             \"RD_ADDR\": {a}, \"{output}\": {last}}}}}",
            16 / y.max(1),
            cell.a.len()
        ));
        defined += y;
    }
    ports.push(format!("\"y\": {{\"direction\": \"output\", \"bits\": {last}}}"));
    let (ports, cells) = (ports.join(", "), cells.join(", "));
    let text =
        format!("{{\"modules\": {{\"m\": {{\"ports\": {{{ports}}}, \"cells\": {{{cells}}}}}}}}}");
    let mut text = text.into_bytes();
    for &(at, byte) in &input.changes {
        let at = usize::from(at) % text.len();
        text[at] = byte;
    }
    text
}
