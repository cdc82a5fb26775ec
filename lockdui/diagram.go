package lockdui

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/lockd/lockd"
)

// The measures of a diagram, in its own units.
const (
	nodeWidth  = 150.0
	nodeHeight = 40.0
	layerGap   = 150.0 // between two layers, where the keys are written
	nodeGap    = 22.0
	margin     = 12.0
	nodesDrawn = 40
	sweeps     = 4
)

// diagram is a drawing of waits: sessions in layers, each left of the sessions that it waits for.
type diagram struct {
	Width, Height float64
	Nodes         []*node
	Arrows        []arrow
}

// node is a session in a diagram.
type node struct {
	party
	X, Y   float64
	Waits  bool
	layer  int     // counted from the right
	weight float64 // its place in the order of its layer
	out    []*node
	in     []*node
	state  uint8 // of the search for layers
}

// arrow is a wait in a diagram.
type arrow struct {
	edge
	Path   string
	LX, LY float64 // of the label
}

// draw makes a diagram of the first nodesDrawn sessions of the edges, and of the edges between
// them. It also returns how many sessions it leaves out.
func draw(edges iter.Seq[edge]) (*diagram, int) {
	nodes := make(map[lockd.SessionID]*node)
	omitted := make(map[lockd.SessionID]bool)
	d := &diagram{}
	find := func(p party) *node {
		n := nodes[p.ID]
		if n == nil && len(nodes) < nodesDrawn {
			n = &node{party: p}
			nodes[p.ID] = n
			d.Nodes = append(d.Nodes, n)
		}
		if n == nil {
			omitted[p.ID] = true
		}
		return n
	}
	for e := range edges {
		from, to := find(e.From), find(e.To)
		if from == nil || to == nil {
			continue
		}
		from.Waits = true
		from.out, to.in = append(from.out, to), append(to.in, from)
		d.Arrows = append(d.Arrows, arrow{edge: e})
	}
	if len(d.Nodes) == 0 {
		return nil, 0
	}
	for _, n := range d.Nodes {
		n.place()
	}
	d.arrange()
	for i := range d.Arrows {
		a := &d.Arrows[i]
		a.route(nodes[a.From.ID], nodes[a.To.ID], d.Height)
	}
	return d, len(omitted)
}

// The states of a node in the search for layers.
const (
	unseen uint8 = iota
	open
	placed
)

// place finds the layer of the node: left of all nodes that it waits for. A wait that closes a
// circle does not count.
func (n *node) place() {
	if n.state != unseen {
		return
	}
	n.state = open
	for _, to := range n.out {
		to.place()
		if to.state == placed {
			n.layer = max(n.layer, to.layer+1)
		}
	}
	n.state = placed
}

// arrange gives the nodes their places: in its layer a node is near the nodes that it waits for, or
// that wait for it.
func (d *diagram) arrange() {
	var layers [][]*node
	for _, n := range d.Nodes {
		for len(layers) <= n.layer {
			layers = append(layers, nil)
		}
		layers[n.layer] = append(layers[n.layer], n)
	}
	most := 0
	for _, layer := range layers {
		most = max(most, len(layer))
		spread(layer)
	}
	for sweep := range sweeps {
		for _, layer := range layers {
			for _, n := range layer {
				if n.weight = mean(n.out); sweep%2 == 1 {
					n.weight = mean(n.in)
				}
				if n.weight < 0 {
					n.weight = n.Y
				}
			}
			slices.SortStableFunc(layer, func(a, b *node) int {
				return cmp.Compare(a.weight, b.weight)
			})
			spread(layer)
		}
	}
	d.Width = 2*margin + float64(len(layers))*(nodeWidth+layerGap) - layerGap
	d.Height = 2*margin + float64(most)*(nodeHeight+nodeGap)
	for at, layer := range layers {
		for i, n := range layer {
			share := (float64(i) + 0.5) / float64(len(layer))
			n.X = margin + float64(len(layers)-1-at)*(nodeWidth+layerGap)
			n.Y = margin + share*(d.Height-2*margin) - nodeHeight/2
		}
	}
}

// spread puts the nodes of a layer at equal distances between 0 and 1.
func spread(layer []*node) {
	for i, n := range layer {
		n.Y = (float64(i) + 0.5) / float64(len(layer))
	}
}

// mean is the mean height of the nodes; -1 if there are none.
func mean(nodes []*node) float64 {
	if len(nodes) == 0 {
		return -1
	}
	sum := 0.0
	for _, n := range nodes {
		sum += n.Y
	}
	return sum / float64(len(nodes))
}

// route draws the arrow to the right, or, if its wait closes a circle, back to the left below the
// nodes.
func (a *arrow) route(from, to *node, height float64) {
	x1, y1 := from.X+nodeWidth, from.Y+nodeHeight/2
	x2, y2 := to.X, to.Y+nodeHeight/2
	if x2 > x1 {
		bend := (x2 - x1) / 2
		a.Path = fmt.Sprintf("M%.1f,%.1f C%.1f,%.1f %.1f,%.1f %.1f,%.1f",
			x1, y1, x1+bend, y1, x2-bend, y2, x2, y2)
		a.LX, a.LY = (x1+x2)/2, (y1+y2)/2
		return
	}
	low := min(max(y1, y2)+nodeHeight+nodeGap/2, height-2)
	a.Path = fmt.Sprintf("M%.1f,%.1f C%.1f,%.1f %.1f,%.1f %.1f,%.1f",
		x1, y1, x1+layerGap/3, low, x2-layerGap/3, low, x2, y2)
	a.LX, a.LY = (x1+x2)/2, (y1+y2+6*low)/8
}

// Age is how long the session has waited.
func (a arrow) Age(now time.Time) age { return ageOf(now, a.Since) }

// MX is the x of the node's middle.
func (n *node) MX() float64 { return n.X + nodeWidth/2 }

// MY is the y of the node's middle.
func (n *node) MY() float64 { return n.Y + nodeHeight/2 }
