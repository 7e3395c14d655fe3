//! Plots of what is more than one figure, as SVG.

use std::path::Path;

use plotters::{
    coord::combinators::IntoLogRange,
    prelude::{
        BLACK, ChartBuilder, Circle, Color, IntoDrawingArea, LineSeries, Palette, Palette99, PathElement, SVGBackend,
        WHITE,
    },
};

/// A curve: its name, and points.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// A curve through these points.
    #[must_use]
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), points }
    }
}

/// A plot of some curves over a logarithmic axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// The name of the file, without `.svg`.
    pub file: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What the horizontal axis counts.
    pub x: &'static str,
    /// What the vertical axis counts.
    pub y: &'static str,
    /// What it shows.
    pub curves: Vec<Curve>,
}

impl Plot {
    /// Draws into `folder`. `command` is what has made the figures.
    ///
    /// # Errors
    ///
    /// In words, why it cannot be drawn.
    pub fn draw(&self, folder: &Path, command: &str) -> Result<(), String> {
        let path = folder.join(self.file).with_extension("svg");
        self.draw_to(&path, command).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn draw_to(&self, path: &Path, command: &str) -> Result<(), Box<dyn std::error::Error>> {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let (mut least, mut most, mut top) = (f64::INFINITY, 1.0_f64, 0.0_f64);
        for (x, y) in points() {
            (least, most, top) = (least.min(*x), most.max(*x), top.max(*y));
        }
        let area = SVGBackend::new(path, (800, 480)).into_drawing_area();
        area.fill(&WHITE)?;
        let area = area.titled(&format!("made by: {command}"), ("sans-serif", 12))?;
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 20))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            .build_cartesian_2d((least..most).log_scale(), 0.0..top * 1.1)?;
        chart.configure_mesh().x_desc(self.x).y_desc(self.y).draw()?;
        for (index, curve) in self.curves.iter().enumerate() {
            let color = Palette99::pick(index).to_rgba();
            chart
                .draw_series(LineSeries::new(curve.points.iter().copied(), color.stroke_width(2)))?
                .label(curve.name.clone())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
            chart.draw_series(curve.points.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
        }
        chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
        area.present()?;
        Ok(())
    }
}
