//! What `inspect` and `methods` show.

mod common;

use common::*;
use safetensors::tensor::Dtype;
use serde_json::json;

#[test]
fn coordinates_of_a_fused_section_are_counted_by_layer() {
    let folder = Folder::new();
    let mut values = vec![0.001f32; 64];
    for large in [0, 3, 15, 40, 41, 63] {
        values[large] = 1.0;
    }
    folder.write(
        "g.safetensors",
        safetensors(&[
            ("a", Dtype::F32, &[4, 4], bytes(&values[..16])),
            ("b.bias", Dtype::F32, &[16], bytes(&values[16..32])),
            ("c", Dtype::F32, &[32], bytes(&values[32..])),
        ]),
    );
    let fields = |words: &str, field: &str| -> Vec<serde_json::Value> {
        folder.text(&format!("compress g.safetensors -o g.tw {words}"));
        let layers = folder.json("inspect g.tw")["layers"].clone();
        layers.as_array().unwrap().iter().map(|layer| layer[field].clone()).collect()
    };
    let method = "--method topk:density=6/64,index=bitmap";
    assert_eq!(fields(method, "count"), [3, 0, 3]);
    assert_eq!(fields(method, "sent"), [json!(["bitmap"]), json!([]), json!(["bitmap"])]);
    assert_eq!(fields(method, "index_bytes"), [2, 2, 4], "a bit for every element");
    assert_eq!(fields(method, "value_bytes"), [12, 0, 12]);

    let method = "--method topk:density=6/48,exclude=*.bias,index=list,values=f16";
    assert_eq!(fields(method, "count"), [3, 16, 3]);
    assert_eq!(fields(method, "sent"), [json!(["list"]), json!(["dense"]), json!(["list"])]);
    assert_eq!(fields(method, "index_bytes"), [12, 0, 12]);
    assert_eq!(fields(method, "value_bytes"), [6, 32, 6]);
    assert_eq!(fields(method, "shared"), [true, false, true]);
    assert_eq!(fields(method, "value_forms"), [json!(["f16"]), json!(["f16"]), json!(["f16"])]);

    let method = "--method fft:exclude=*.bias,theta=0.5";
    assert_eq!(fields(method, "sent"), [json!(["frequencies"]), json!(["dense"]), json!(["frequencies"])]);
    let text = folder.text("inspect g.tw");
    for part in ["fft:", "frequencies", "range10m5", "b.bias", "4 × 4", "total", "~"] {
        assert!(text.contains(part), "expected {part:?} in:\n{text}");
    }
}

#[test]
fn the_header_is_shown() {
    let folder = Folder::new();
    folder.write("g.npy", npy("<f4", true, &[2, 3], &bytes(&[1., 2., 3., 4., 5., 6.])));
    folder.text("compress g.npy -o g.tw --density 1/2 --step 41");
    let shown = folder.json("inspect g.tw");
    assert_eq!(shown["method"], "topk:density=0.5");
    assert_eq!(shown["fortran_order"], true);
    assert_eq!(shown["frame"], json!({"step": 41, "plan": 0, "bucket": 0, "elements": 6}));
    assert_eq!(shown["layers"][0]["shape"], json!([2, 3]));
    let text = folder.text("inspect g.tw");
    assert!(text.contains("step 41") && text.contains("Fortran order"), "{text}");
}

#[test]
fn methods_are_listed_with_their_parameters() {
    let folder = Folder::new();
    // Sentences are broken into lines, so that only their words can be looked for.
    let holds = |text: &str, part: &str| part.split_whitespace().all(|word| text.contains(word));
    let list = folder.text("methods");
    let json = folder.json("methods");
    for method in json["methods"].as_array().unwrap() {
        let name = method["name"].as_str().unwrap();
        assert!(holds(&list, name) && holds(&list, method["summary"].as_str().unwrap()), "{list}");
        assert_eq!(folder.json(&format!("methods {name}")), *method);
        let text = folder.text(&format!("methods {name}"));
        for parameter in method["parameters"].as_array().unwrap() {
            for field in ["name", "default", "help"] {
                assert!(holds(&text, parameter[field].as_str().unwrap()), "{name} {parameter}\n{text}");
            }
        }
    }
    assert!(folder.text("methods iwp").contains("--weights"));
}
