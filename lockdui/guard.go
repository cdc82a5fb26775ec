package lockdui

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// guard refuses requests that a stranger's page makes a browser send. Its rules are those of lockd
// serve without a token, except that a link on another page may lead here.
type guard struct {
	hosts    Hosts
	hostname string
	origin   http.CrossOriginProtection
}

func (g *guard) init(hosts Hosts) {
	g.hosts = hosts
	g.hostname, _ = os.Hostname() // after an error the machine has no name but localhost
}

// refuses returns why a request is refused, or an empty text.
func (g *guard) refuses(r *http.Request) string {
	if g.hosts == LocalHosts && !g.isLocal(r.Host) {
		return fmt.Sprintf("Permission denied: host %q may be a name that a stranger gave this "+
			"machine: ask for localhost or an address, or mount the handler behind a login, "+
			"with Options.Hosts: lockdui.AnyHost", r.Host)
	}
	if r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-Dest") == "document" {
		return "" // a person follows a link, and the page with the link cannot read the answer
	}
	write := *r // the protection lets every read pass; here a read of another origin is refused too
	write.Method = http.MethodPost
	if err := g.origin.Check(&write); err != nil {
		return "Permission denied: " + err.Error()
	}
	return ""
}

// isLocal reports whether the host, with or without a port, is an address, or a name that no
// stranger can give this machine. A browser always names a host.
func (g *guard) isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(host)
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "" || host == "localhost" ||
		strings.HasSuffix(host, ".localhost") || host == strings.ToLower(g.hostname)
}
