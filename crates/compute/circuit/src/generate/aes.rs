//! AES-128 (FIPS 197). A byte is 8 wires, the least significant bit first; bytes are in the
//! standard's order.

use crate::batch::Wire;
use crate::builder::{CircuitBuilder, constant};
use crate::circuit::Circuit;

/// AES-128 of a block of the evaluator under a key of the garbler, with the key schedule: 6,400
/// ANDs.
pub fn aes128() -> Circuit {
    let mut builder = CircuitBuilder::new(&[128, 128]);
    let [key, block] = [builder.input(0), builder.input(1)];
    let encrypted = aes128_block(&mut builder, &key, &block);
    builder.finish(&[&encrypted])
}

/// The encryption of a block of 128 bits under a key of 128 bits.
///
/// # Panics
/// If the number of bits is wrong.
pub fn aes128_block(builder: &mut CircuitBuilder, key: &[Wire], block: &[Wire]) -> Vec<Wire> {
    assert_eq!((key.len(), block.len()), (128, 128), "bits");
    let mut key = key.to_vec();
    let mut state = builder.xor_bits(block, &key);
    let mut round_constant = 1_u64;
    for round in 1..=10 {
        state = state.chunks(8).flat_map(|byte| substitute(builder, byte)).collect();
        state = shift_rows(&state);
        if round < 10 {
            state = state.chunks(32).flat_map(|column| mix_column(builder, column)).collect();
        }
        key = next_round_key(builder, &key, round_constant);
        round_constant = (round_constant << 1) ^ ((round_constant >> 7) * 0x11b);
        state = builder.xor_bits(&state, &key);
    }
    state
}

/// The state is four columns of four bytes; row r moves r columns.
fn shift_rows(state: &[Wire]) -> Vec<Wire> {
    let byte = |i: usize| {
        let (column, row) = (i / 4, i % 4);
        &state[8 * ((column + row) % 4 * 4 + row)..][..8]
    };
    (0..16).flat_map(byte).copied().collect()
}

fn mix_column(builder: &mut CircuitBuilder, column: &[Wire]) -> Vec<Wire> {
    let byte = |i: usize| &column[8 * (i % 4)..][..8];
    let all = builder.xor_bits(byte(0), byte(1));
    let others = builder.xor_bits(byte(2), byte(3));
    let all = builder.xor_bits(&all, &others);
    let mut mixed = Vec::with_capacity(32);
    for i in 0..4 {
        // 2 a + 3 b + c + d = 2 (a + b) + a + (a + b + c + d).
        let two = builder.xor_bits(byte(i), byte(i + 1));
        let two = double(builder, &two);
        let rest = builder.xor_bits(byte(i), &all);
        mixed.extend(builder.xor_bits(&two, &rest));
    }
    mixed
}

/// The product with x in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1.
fn double(builder: &mut CircuitBuilder, byte: &[Wire]) -> Vec<Wire> {
    let high = byte[7];
    let mut doubled = vec![high];
    doubled.extend_from_slice(&byte[..7]);
    for i in [1, 3, 4] {
        doubled[i] = builder.xor(doubled[i], high);
    }
    doubled
}

fn next_round_key(builder: &mut CircuitBuilder, key: &[Wire], round_constant: u64) -> Vec<Wire> {
    let last = &key[96..];
    let rotated = [&last[8..], &last[..8]].concat();
    let mut word: Vec<Wire> =
        rotated.chunks(8).flat_map(|byte| substitute(builder, byte)).collect();
    word = builder.xor_bits(&word, &constant(round_constant, 32));
    let mut next = Vec::with_capacity(128);
    for before in key.chunks(32) {
        word = builder.xor_bits(&word, before);
        next.extend_from_slice(&word);
    }
    next
}

/// Defines each name as the XOR (`^`) or AND (`&`) of two others.
macro_rules! gates {
    ($builder:ident; $($out:ident = $a:ident $operator:tt $b:ident;)*) => {
        $(let $out = gates!(@ $builder, $a $operator $b);)*
    };
    (@ $builder:ident, $a:ident ^ $b:ident) => { $builder.xor($a, $b) };
    (@ $builder:ident, $a:ident & $b:ident) => { $builder.and($a, $b) };
}

/// The S-box with 32 ANDs of Boyar and Peralta, "A new combinational logic minimization technique
/// with applications to cryptology" (2010), figures 5 to 7.
fn substitute(builder: &mut CircuitBuilder, byte: &[Wire]) -> Vec<Wire> {
    let [x7, x6, x5, x4, x3, x2, x1, x0] = *byte else { unreachable!("a byte has eight bits") };
    // Linear: the inputs of the inversion.
    gates! { builder;
        y14 = x3 ^ x5; y13 = x0 ^ x6; y9 = x0 ^ x3; y8 = x0 ^ x5; t0 = x1 ^ x2; y1 = t0 ^ x7;
        y4 = y1 ^ x3; y12 = y13 ^ y14; y2 = y1 ^ x0; y5 = y1 ^ x6; y3 = y5 ^ y8; t1 = x4 ^ y12;
        y15 = t1 ^ x5; y20 = t1 ^ x1; y6 = y15 ^ x7; y10 = y15 ^ t0; y11 = y20 ^ y9; y7 = x7 ^ y11;
        y17 = y10 ^ y11; y19 = y10 ^ y8; y16 = t0 ^ y11; y21 = y13 ^ y16; y18 = x0 ^ y16;
    }
    // The inversion.
    gates! { builder;
        t2 = y12 & y15; t3 = y3 & y6; t4 = t3 ^ t2; t5 = y4 & x7; t6 = t5 ^ t2; t7 = y13 & y16;
        t8 = y5 & y1; t9 = t8 ^ t7; t10 = y2 & y7; t11 = t10 ^ t7; t12 = y9 & y11; t13 = y14 & y17;
        t14 = t13 ^ t12; t15 = y8 & y10; t16 = t15 ^ t12; t17 = t4 ^ t14; t18 = t6 ^ t16;
        t19 = t9 ^ t14; t20 = t11 ^ t16; t21 = t17 ^ y20; t22 = t18 ^ y19; t23 = t19 ^ y21;
        t24 = t20 ^ y18; t25 = t21 ^ t22; t26 = t21 & t23; t27 = t24 ^ t26; t28 = t25 & t27;
        t29 = t28 ^ t22; t30 = t23 ^ t24; t31 = t22 ^ t26; t32 = t31 & t30; t33 = t32 ^ t24;
        t34 = t23 ^ t33; t35 = t27 ^ t33; t36 = t24 & t35; t37 = t36 ^ t34; t38 = t27 ^ t36;
        t39 = t29 & t38; t40 = t25 ^ t39; t41 = t40 ^ t37; t42 = t29 ^ t33; t43 = t29 ^ t40;
        t44 = t33 ^ t37; t45 = t42 ^ t41; z0 = t44 & y15; z1 = t37 & y6; z2 = t33 & x7;
        z3 = t43 & y16; z4 = t40 & y1; z5 = t29 & y7; z6 = t42 & y11; z7 = t45 & y17;
        z8 = t41 & y10; z9 = t44 & y12; z10 = t37 & y3; z11 = t33 & y4; z12 = t43 & y13;
        z13 = t40 & y5; z14 = t29 & y2; z15 = t42 & y9; z16 = t45 & y14; z17 = t41 & y8;
    }
    // Linear: the outputs, of which four are inverted.
    gates! { builder;
        t46 = z15 ^ z16; t47 = z10 ^ z11; t48 = z5 ^ z13; t49 = z9 ^ z10; t50 = z2 ^ z12;
        t51 = z2 ^ z5; t52 = z7 ^ z8; t53 = z0 ^ z3; t54 = z6 ^ z7; t55 = z16 ^ z17; t56 = z12 ^ t48;
        t57 = t50 ^ t53; t58 = z4 ^ t46; t59 = z3 ^ t54; t60 = t46 ^ t57; t61 = z14 ^ t57;
        t62 = t52 ^ t58; t63 = t49 ^ t58; t64 = z4 ^ t59; t65 = t61 ^ t62; t66 = z1 ^ t63;
        s0 = t59 ^ t63; s6 = t56 ^ t62; s7 = t48 ^ t60; t67 = t64 ^ t65; s3 = t53 ^ t66;
        s4 = t51 ^ t66; s5 = t47 ^ t65; s1 = t64 ^ s3; s2 = t55 ^ t67;
    }
    let [s7, s6, s2, s1] = [s7, s6, s2, s1].map(|bit| builder.not(bit));
    vec![s7, s6, s5, s4, s3, s2, s1, s0]
}
