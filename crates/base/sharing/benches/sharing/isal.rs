//! Intel's storage library libisal, for comparison: an independent implementation of the same
//! linear combinations.
//!
//! It is loaded at run time, so that no build depends on it. Its field is GF(2^8) modulo 0x11D,
//! ours modulo 0x11B; the work is the same.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uchar};

use libloading::{Library, Symbol};

type InitTables = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type EncodeData = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    *const c_uchar,
    *const *const c_uchar,
    *const *mut c_uchar,
);

/// The two functions of the library that are used.
pub(crate) struct Isal {
    init_tables: InitTables,
    encode_data: EncodeData,
    /// Keeps the library loaded, so that the functions stay valid.
    _library: Library,
}

impl Isal {
    /// Loads the library, if it is installed.
    pub(crate) fn load() -> Result<Self, libloading::Error> {
        // SAFETY: the library has no initialiser with an effect on this program, and these are
        // the types of erasure_code.h, version 2.30.
        unsafe {
            let library = Library::new("libisal.so.2")?;
            let init_tables: Symbol<'_, InitTables> = library.get("ec_init_tables")?;
            let encode_data: Symbol<'_, EncodeData> = library.get("ec_encode_data")?;
            let (init_tables, encode_data) = (*init_tables, *encode_data);
            Ok(Self { init_tables, encode_data, _library: library })
        }
    }

    /// Prepares a matrix from `inputs * outputs` weights.
    pub(crate) fn matrix(&self, inputs: usize, outputs: usize) -> Matrix {
        let weights: Vec<u8> = (2..=255).cycle().take(inputs * outputs).collect();
        let mut tables = vec![0; 32 * inputs * outputs];
        // SAFETY: the function reads `inputs * outputs` bytes and writes 32 for each.
        unsafe {
            (self.init_tables)(int(inputs), int(outputs), weights.as_ptr(), tables.as_mut_ptr());
        }
        Matrix { inputs, outputs, tables }
    }

    /// Applies the matrix, `times` times.
    pub(crate) fn apply(
        &self,
        matrix: &Matrix,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        times: usize,
    ) {
        let len = inputs[0].len();
        assert!(inputs.len() == matrix.inputs && outputs.len() == matrix.outputs);
        assert!(inputs.iter().all(|input| input.len() == len));
        assert!(outputs.iter().all(|output| output.len() == len));
        let inputs: Vec<*const u8> = inputs.iter().map(|input| input.as_ptr()).collect();
        let outputs: Vec<*mut u8> = outputs.iter_mut().map(|output| output.as_mut_ptr()).collect();
        for _ in 0..times {
            // SAFETY: there are as many pointers as the matrix was made for, to `len` bytes each.
            unsafe {
                (self.encode_data)(
                    int(len),
                    int(matrix.inputs),
                    int(matrix.outputs),
                    matrix.tables.as_ptr(),
                    inputs.as_ptr(),
                    outputs.as_ptr(),
                );
            }
        }
    }
}

/// Weights in the library's form.
pub(crate) struct Matrix {
    inputs: usize,
    outputs: usize,
    tables: Vec<u8>,
}

fn int(number: usize) -> c_int {
    c_int::try_from(number).expect("a small number")
}
