//! What each layer of a file was sent as. Sections may cover many layers; their bytes are shared out.

use anyhow::Result;
use serde::Serialize;
use thinwire::Bucket;
use thinwire::codec::{IndexForm, Section};

use crate::container::Container;

/// What was sent of one layer.
#[derive(Debug, Default, Serialize)]
pub struct LayerRow {
    pub name: String,
    pub shape: Vec<usize>,
    pub dtype: &'static str,
    pub elements: usize,
    /// dense, delta, bitmap, list, frequencies, or several of them; empty if nothing was sent.
    pub sent: Vec<&'static str>,
    pub count: u64,
    pub index_bytes: u64,
    pub value_forms: Vec<String>,
    pub value_bytes: u64,
    /// Bytes as f32 over bytes sent; none if nothing was sent.
    pub ratio: Option<f64>,
    /// Whether the bytes (and of frequencies, the count too) are a share of what several layers have together.
    pub shared: bool,
}

/// A layer's part in a section.
struct Part {
    layer: usize,
    elements: u64,
    count: u64,
}

/// What sections of frequencies have together; they can't be told apart by layer.
#[derive(Default)]
struct Frequencies {
    count: u64,
    index_bytes: u64,
    value_bytes: u64,
    form: Option<String>,
}

/// One row for each layer. The bytes in the rows add up to those of the sections.
pub fn rows(container: &Container<'_>) -> Result<Vec<LayerRow>> {
    let infos = &container.header.layers;
    let mut rows: Vec<LayerRow> = infos
        .iter()
        .map(|info| LayerRow {
            name: info.name.clone(),
            shape: info.shape.clone(),
            dtype: info.dtype.name(),
            elements: info.elements(),
            ..LayerRow::default()
        })
        .collect();
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    let mut frequencies = Frequencies::default();
    for section in container.frame.sections() {
        section.decode(&mut indices, &mut values)?;
        if section.width() == 1 {
            add_section(&mut rows, &section, &parts(&container.bucket, &section, &indices));
        } else {
            frequencies.count += u64::from(section.count());
            frequencies.index_bytes += section.index_bytes().len() as u64;
            frequencies.value_bytes += section.value_bytes().len() as u64;
            frequencies.form.get_or_insert(section.value_form().to_string());
        }
    }
    if let Some(form) = &frequencies.form {
        add_frequencies(&mut rows, container, &frequencies, form);
    }
    for row in &mut rows {
        let bytes = row.index_bytes + row.value_bytes;
        row.ratio = (bytes > 0).then(|| 4.0 * row.elements as f64 / bytes as f64);
    }
    Ok(rows)
}

/// The layers that a section covers, and how many of its coordinates fall into each.
fn parts(bucket: &Bucket, section: &Section<'_>, indices: &[u32]) -> Vec<Part> {
    let start = section.start() as usize;
    let end = start + section.universe() as usize;
    let layers = bucket.layers();
    let first = layers.partition_point(|layer| layer.range().end <= start);
    let mut parts = Vec::new();
    for (number, layer) in layers.iter().enumerate().skip(first) {
        let range = layer.range();
        if range.start >= end {
            break;
        }
        let (begin, behind) = (range.start.max(start) - start, range.end.min(end) - start);
        let elements = (behind - begin) as u64;
        let below = |limit: usize| indices.partition_point(|&index| (index as usize) < limit) as u64;
        let all = section.index_form() == IndexForm::All;
        let count = if all { elements } else { below(behind) - below(begin) };
        if elements > 0 {
            parts.push(Part { layer: number, elements, count });
        }
    }
    parts
}

fn add_section(rows: &mut [LayerRow], section: &Section<'_>, parts: &[Part]) {
    let counts: Vec<u64> = parts.iter().map(|part| part.count).collect();
    let elements: Vec<u64> = parts.iter().map(|part| part.elements).collect();
    // A bitmap costs a bit for every element, the other forms something for every coordinate.
    let by = if section.index_form() == IndexForm::Bitmap { &elements } else { &counts };
    let index_bytes = share(section.index_bytes().len() as u64, by);
    let value_bytes = share(section.value_bytes().len() as u64, &counts);
    let sent = match section.index_form() {
        IndexForm::All => "dense",
        form => form.name(),
    };
    for (number, part) in parts.iter().enumerate() {
        let row = &mut rows[part.layer];
        row.count += part.count;
        row.index_bytes += index_bytes[number];
        row.value_bytes += value_bytes[number];
        // Where everything is sent the bytes are known to be the layer's own.
        let bytes = index_bytes[number] + value_bytes[number];
        row.shared |= parts.len() > 1 && bytes > 0 && section.index_form() != IndexForm::All;
        if part.count > 0 {
            add_once(&mut row.sent, sent);
            add_once(&mut row.value_forms, section.value_form().to_string());
        }
    }
}

/// Shares frequencies out by elements among the layers that the method compresses.
fn add_frequencies(rows: &mut [LayerRow], container: &Container<'_>, found: &Frequencies, form: &str) {
    let compressed = container.recipe.rules.split(&container.bucket).compressed;
    let elements: Vec<u64> = compressed.iter().map(|&layer| rows[layer].elements as u64).collect();
    let counts = share(found.count, &elements);
    let index_bytes = share(found.index_bytes, &elements);
    let value_bytes = share(found.value_bytes, &elements);
    for (number, &layer) in compressed.iter().enumerate() {
        let row = &mut rows[layer];
        row.count += counts[number];
        row.index_bytes += index_bytes[number];
        row.value_bytes += value_bytes[number];
        row.shared |= compressed.len() > 1;
        add_once(&mut row.sent, "frequencies");
        add_once(&mut row.value_forms, form.to_owned());
    }
}

fn add_once<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// Cuts `total` in proportion to `weights`, into whole numbers that add up to it.
fn share(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u64 = weights.iter().sum();
    let up_to = |weight: u64| (u128::from(total) * u128::from(weight) / u128::from(sum.max(1))) as u64;
    let mut before = 0;
    weights
        .iter()
        .map(|weight| {
            let part = up_to(before + weight) - up_to(before);
            before += weight;
            part
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        assert_eq!(share(10, &[1, 1, 1]), [3, 3, 4]);
        assert_eq!(share(7, &[0, 5, 0]), [0, 7, 0]);
        assert_eq!(share(u64::MAX, &[1 << 40, 1 << 40]).iter().sum::<u64>(), u64::MAX);
        assert_eq!((share(0, &[]), share(0, &[0, 0])), (vec![], vec![0, 0]));
    }
}
