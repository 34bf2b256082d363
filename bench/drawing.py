"""Elements of SVG pictures, as text. `more`: further attributes, as they are written."""


def _at(value):
    return f"{value:.1f}".removesuffix(".0")


def _element(name, attributes, title):
    return f"<{name} {attributes}><title>{title}</title></{name}>" if title else f"<{name} {attributes}/>"


def text(x, y, content, more=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" {more}>{content}</text>'


def line(x1, y1, x2, y2, more):
    return f'<line x1="{_at(x1)}" y1="{_at(y1)}" x2="{_at(x2)}" y2="{_at(y2)}" {more}/>'


def curve(points, more):
    """The points, joined by straight lines."""
    return f'<polyline points="{" ".join(f"{_at(x)},{_at(y)}" for x, y in points)}" fill="none" {more}/>'


def circle(x, y, radius, more, title=""):
    return _element("circle", f'cx="{_at(x)}" cy="{_at(y)}" r="{radius}" {more}', title)


def document(width, height, parts, label=""):
    """A file on white, the parts a line each."""
    described = f' role="img" aria-label="{label}"' if label else ""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="11"{described}>'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"]) + "\n"
