//! A process that forks, while other threads of it use the module.

use std::process::Command;

use crate::server::SigningServer;

/// Forks from Python, which loads the module as programs do.
const SCRIPT: &str = "
import ctypes, os, sys, threading
names = 'C_Initialize C_Finalize C_GetInfo'.split()
class List(ctypes.Structure):
    _fields_ = [('version', ctypes.c_ubyte * 2), ('initialize', ctypes.c_void_p),
        ('finalize', ctypes.c_void_p), ('info', ctypes.c_void_p),
        ('function_list', ctypes.c_void_p), ('slot_list', ctypes.c_void_p)]
library = ctypes.CDLL(sys.argv[1])
pointer = ctypes.POINTER(List)()
assert library.C_GetFunctionList(ctypes.byref(pointer)) == 0
def function(name, *kinds):
    return ctypes.CFUNCTYPE(ctypes.c_ulong, *kinds)(getattr(pointer[0], name))
initialize = function('initialize', ctypes.c_void_p)
finalize = function('finalize', ctypes.c_void_p)
slot_list = function('slot_list', ctypes.c_ubyte, ctypes.c_void_p, ctypes.c_void_p)
count = ctypes.c_ulong()
slots = lambda: (slot_list(1, None, ctypes.byref(count)), count.value)
assert initialize(None) == 0 and slots() == (0, 1), slots()
stopped = threading.Event()
def use():
    while not stopped.is_set():
        slots()
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(50):
    child = os.fork()
    if child == 0:
        # A child does not use what its parent has begun, and begins again.
        right = slots()[0] == 0x190 and initialize(None) == 0 and initialize(None) == 0x191
        right = right and slots() == (0, 1) and finalize(None) == 0
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
stopped.set()
for thread in threads:
    thread.join()
assert slots() == (0, 1) and finalize(None) == 0
print('forked')
";

#[test]
fn a_forked_child_begins_again_while_threads_of_the_parent_use_the_module() {
    let server = SigningServer::start();
    let module = std::env::current_exe().unwrap().with_file_name("libsunder_pkcs11.so");
    let output = Command::new("timeout")
        .args(["60", "python3", "-c", SCRIPT])
        .arg(module)
        .env(sunder_pkcs11::config::SOCKET_VARIABLE, server.socket())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout == b"forked\n", "{}: {errors}", output.status);
}
