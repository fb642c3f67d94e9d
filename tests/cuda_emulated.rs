//! The device layer on whatever CUDA device is there: a real one, or the emulator of `tests/cuda_on_host`.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]

use sidereal::backend::cuda::{Arguments, Device, Source};

#[test]
fn saxpy_runs() {
    let Ok(device) = Device::open(0) else {
        println!("skipped: no CUDA device");
        return;
    };
    let source = Source {
        name: "saxpy.cu",
        text: "#include \"device.cuh\"\nKERNEL saxpy(float a, u64 x, u64 y, u32 n) {\n\
            u32 i = blockIdx.x * blockDim.x + threadIdx.x;\n\
            if (i < n) ((float*)y)[i] = fmaf(a, ((const float*)x)[i], ((float*)y)[i]);\n}",
        includes: &[],
        defines: vec![],
    };
    println!("{device:?}");
    let module = device.module(&source).unwrap();
    let function = module.function("saxpy", 0).unwrap();
    let x: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let on_x = device.upload(&x).unwrap();
    let on_y = device.upload(&vec![1.0_f32; 1000]).unwrap();
    let stream = device.stream().unwrap();
    let arguments =
        Arguments::new().with(2.0_f32).with(on_x.address()).with(on_y.address()).with(1000_u32);
    // SAFETY: the arguments are those of the kernel, and both buffers have 1000 elements.
    unsafe { stream.launch(&function, [4, 1, 1], [256, 1, 1], &arguments) }.unwrap();
    stream.synchronize().unwrap();
    let mut y = vec![0.0_f32; 1000];
    on_y.download(0, &mut y).unwrap();
    assert!(x.iter().zip(&y).all(|(x, y)| *y == 2.0 * x + 1.0));
}
