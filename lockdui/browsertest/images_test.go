package browsertest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdui"
)

var sharing = &lockd.LockOptions{Mode: lockd.Shared}

// busy is a site on which something hangs.
func busy(t *testing.T) *site {
	s := newSite(t, &lockdui.Options{Actions: lockdui.ForceUnlockAndEnd})
	must(t, s.SetLimit("pool/gpu", 2))
	leader := s.holds("node-1", "scheduler/leader")
	for i, work := range []time.Duration{30 * time.Second, 15 * time.Second, 50 * time.Second} {
		next := s.session(fmt.Sprintf("node-%d", i+2))
		s.Advance(work)
		s.waits(next, "scheduler/leader")
		s.Advance(20 * time.Second)
		if i == 1 {
			must(t, s.EndSession(leader.ID()))
			s.Advance(lockd.DefaultLockDelay)
		} else {
			must(t, leader.Close())
		}
		leader = next
	}
	s.holds("billing-1", "orders/4711")
	s.Advance(20 * time.Second)
	importer := s.holds("importer-2", "invoices/2026/11", "invoices/2026/12")
	s.Advance(7 * time.Second)
	s.waits(importer, "orders/4711")
	s.Advance(64 * time.Second)
	for _, name := range []string{"gpu-a", "gpu-b"} {
		_, err := s.session(name).TryAcquire("pool/gpu", 2)
		must(t, err)
	}
	gpu := s.session("gpu-c")
	go gpu.Acquire(t.Context(), "pool/gpu", 2)
	s.WaitForWaiters("pool/gpu/.lock", 1)
	report := s.session("report-7")
	s.waits(report, "invoices/2026/11")
	s.Advance(41 * time.Second)
	s.waits(s.session("web-3"), "invoices/2026/11")
	s.waits(s.session("web-9"), "orders/4711")
	expired, err := s.NewSession(&lockd.SessionOptions{Name: "backup", TTL: 10 * time.Second})
	must(t, err)
	_, err = expired.TryLock("backup/nightly", nil)
	must(t, err)
	s.waits(s.holds("cleaner", "tmp/\xff\x00sweep"), "backup/nightly")
	s.Advance(3 * time.Second)
	for _, name := range []string{"edge-1", "edge-2", "edge-3", "edge-4"} {
		_, err := s.session(name).TryLock("config/routes", sharing)
		must(t, err)
		s.Advance(2 * time.Second)
	}
	s.waits(s.session("deploy"), "config/routes")
	late := s.session("edge-5")
	go late.Lock(t.Context(), "config/routes", sharing)
	s.WaitForWaiters("config/routes", 2)
	s.Advance(4 * time.Second)
	return s
}

// circle is a database with two sessions that wait for each other, which no context shows.
func circle(t *testing.T) *site {
	s := newSite(t, nil)
	web := s.holds("web", "users")
	s.Advance(3 * time.Second)
	mail := s.holds("mail", "orders")
	s.Advance(2 * time.Second)
	s.waits(web, "orders")
	s.Advance(time.Second)
	s.waits(mail, "users")
	s.Advance(20 * time.Second)
	return s
}

// scheme sets the color scheme that the browser prefers: light or dark.
func (p *page) scheme(name string) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
	must(p.t, err)
}

// Ensure that screenshots can be made, and write them to the folder of -images if it is set.
func TestImages(t *testing.T) {
	if *images == "" {
		t.Skip("no -images")
	}
	p := tab(t)
	shoot := func(s *site, name, path string, width, height int64, scheme string) {
		t.Helper()
		p.scheme(scheme)
		p.run(chromedp.EmulateViewport(width, height))
		p.open(s.url + path)
		png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		must(t, err)
		must(t, os.WriteFile(filepath.Join(*images, name+".png"), png, 0o644))
	}
	s := busy(t)
	shoot(s, "locks", "", 960, 690, "light")
	shoot(s, "key", "key?k=scheduler%2Fleader", 960, 760, "light")
	shoot(s, "waits", "graph", 960, 560, "dark")
	shoot(circle(t), "deadlock", "graph", 960, 300, "light")
}
