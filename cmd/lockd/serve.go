package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
	"github.com/lockd/lockd/lockdui"
)

// windUp is how long requests may go on after a signal. Together with closing the database that
// takes less than 5 s.
const windUp = 3 * time.Second

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:      "serve",
		Category:  "a server",
		Usage:     "serve a database by Consul's HTTP API",
		ArgsUsage: " ",
		Description: "Its URL is printed on a line of standard output as soon as it accepts.\n" +
			"SIGINT and SIGTERM end it; sessions and locks stay in the file, with their TTLs\n" +
			"anew when it is served again. A session lives for one more of its TTLs before it\n" +
			"expires, as in Consul.\n\n" +
			"Without a token it listens on loopback addresses and sockets only, and refuses\n" +
			"requests that a browser sends for a page of another origin; without TLS too those\n" +
			"whose Host is a name that is not this machine's, except on a socket. With one\n" +
			"every request has to bear it, in the header X-Consul-Token or as Authorization:\n" +
			"Bearer, and an address that other machines can reach needs TLS, or --plain-http.\n" +
			"Only /healthz asks for none: it answers 200 until the database fails. SIGHUP reads\n" +
			"the token file again; a file that has none leaves the old in force.\n\n" +
			"A client of another machine may have 200 connections at a time. All together may\n" +
			"have 16,384, or fewer if the process may have fewer files open.\n\n" +
			"/ui/ shows locks, sessions and who waits for whom in a browser; if there is a\n" +
			"token, it is the password there, with any name.\n\n" +
			"/metrics has metrics for Prometheus. Refused tokens are counted there, and logged\n" +
			"once in ten seconds, as are TLS handshakes that fail.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "http", Value: "127.0.0.1:8500",
				Usage: "`ADDRESS` to listen on; with port 0 the system chooses one; unix://PATH " +
					"for a socket that only this user can connect to"},
			&cli.StringFlag{Name: "data", Usage: "`FILE` of the database, made if there is none"},
			waitFlag(),
			&cli.BoolFlag{Name: "memory", Usage: "keep everything in memory, in place of --data"},
			&cli.StringFlag{Name: "node", Usage: "`NAME` of the node (default: the host's)"},
			&cli.StringFlag{Name: "node-id", Usage: "`UUID` of the node " +
				"(default: the one that the file has, or a random one)"},
			&cli.StringFlag{Name: "datacenter", Value: "dc1", Usage: "`NAME` of the datacenter"},
			&cli.StringFlag{Name: "token", Usage: "`TOKEN` that requests have to bear; others on " +
				"the machine can read a command line, so better a file"},
			&cli.StringFlag{Name: "token-file", Usage: "`FILE` that has the token"},
			&cli.BoolFlag{Name: "ui-actions", Usage: "let the pages at /ui/ take locks away by " +
				"force and end sessions"},
			&cli.StringFlag{Name: "tls-cert", Usage: "`FILE` of the certificate, and those up to " +
				"its authority, to serve https with"},
			&cli.StringFlag{Name: "tls-key", Usage: "`FILE` of the certificate's key"},
			&cli.BoolFlag{Name: "plain-http", Usage: "take the token without TLS on an address " +
				"that other machines can reach"},
			&cli.DurationFlag{Name: "slow", HideDefault: true,
				Usage: "log a lock or a slot, once and as a warning, that is held for longer " +
					"than `TIME`, such as 30s"},
		}, logFlags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if _, err := operands(cmd, 0, 0); err != nil {
				return err
			}
			s, err := serviceOf(cmd)
			if err != nil {
				return err
			}
			return s.serve(ctx, cmd)
		},
	}
}

// service is what lockd serve has to do.
type service struct {
	address   listenAddress
	path      string // empty: in memory
	token     string // empty: none is asked for
	tokenFile string // that has the token; empty: it was given in another way
	tls       *tls.Config
	log       *logQueue // of the logger
	logger    *slog.Logger
	uiActions lockdui.Actions

	db  lockd.Options
	api consulapi.Options
}

// serviceOf reads the command line.
func serviceOf(cmd *cli.Command) (*service, error) {
	if err := checkTexts(cmd); err != nil {
		return nil, err
	}
	if err := checkNode(cmd); err != nil {
		return nil, err
	}
	s := &service{
		path: cmd.String("data"), tokenFile: cmd.String("token-file"), log: newLogQueue(),
	}
	if (s.path == "") != cmd.Bool("memory") {
		return nil, usage(cmd, "serve needs either --data FILE or --memory")
	}
	if cmd.Bool("ui-actions") {
		s.uiActions = lockdui.ForceUnlockAndEnd
	}
	var err error
	if s.logger, err = newLogger(cmd, s.log); err != nil {
		return nil, err
	}
	if s.token, err = token(cmd); err != nil {
		return nil, err
	}
	if s.address, err = listenAddressOf(cmd); err != nil {
		return nil, err
	}
	if s.token == "" && !s.address.isPrivate() {
		return nil, usage(cmd, "--http %s can be reached from other machines: give a "+
			"--token-file, or an address such as 127.0.0.1:8500", cmd.String("http"))
	}
	certificate, key := cmd.String("tls-cert"), cmd.String("tls-key")
	if certificate == "" && !s.address.isPrivate() && !cmd.Bool("plain-http") {
		return nil, usage(cmd, "--http %s without TLS sends the token, and everything else, "+
			"where others can read it: give --tls-cert and --tls-key, or --plain-http if "+
			"something else encrypts it on the way", cmd.String("http"))
	}
	if (certificate == "") != (key == "") {
		return nil, usage(cmd, "one of --tls-cert and --tls-key is given without the other")
	}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil { // which may name no file
			return nil, fmt.Errorf("--tls-cert %s, --tls-key %s: %w", certificate, key, err)
		}
		s.tls = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	opts, err := openOptions(cmd)
	if err != nil {
		return nil, err
	}
	if opts.Slow = cmd.Duration("slow"); cmd.IsSet("slow") && opts.Slow < time.Millisecond {
		return nil, usage(cmd, "--slow %v is less than a millisecond: leave it out to log no lock "+
			"that is held for long", opts.Slow)
	}
	s.db = *opts
	s.db.Node, s.db.Reopen, s.db.Logger = cmd.String("node"), lockd.EndNone, s.logger
	if s.db.Node == "" {
		if s.db.Node, err = os.Hostname(); err != nil {
			return nil, err
		}
	}
	s.api = consulapi.Options{
		GraceTTLs: 1, NodeID: cmd.String("node-id"), Datacenter: cmd.String("datacenter"),
		Logger: s.logger,
	}
	return s, nil
}

// checkNode refuses a name or an ID that no node can have.
func checkNode(cmd *cli.Command) error {
	name, id := cmd.String("node"), cmd.String("node-id")
	if len(name) > lockd.MaxKeySize {
		return usage(cmd, "--node has %d bytes, more than %d", len(name), lockd.MaxKeySize)
	}
	if !utf8.ValidString(name) {
		return usage(cmd, "--node %q is not UTF-8", name)
	}
	if _, err := lockd.ParseSessionID(id); err != nil && id != "" { // a session's ID is a UUID too
		return usage(cmd, "--node-id %q is not a UUID, of the form %s", id,
			"01234567-89ab-cdef-0123-456789abcdef")
	}
	return nil
}

// guard returns a function that wraps a handler, and lets only permitted requests through to it.
func (s *service) guard(token *secret) func(next http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if token != nil {
			return guarded(token, next)
		}
		next = sameOrigin(next) // any web page could send requests, also to a forwarded socket
		// A certificate proves the name to the browser; what forwards a socket chooses the name.
		if s.address.port != nil && s.tls == nil {
			hostname, _ := os.Hostname() // without it, the machine has no name but localhost
			next = local(hostname, next)
		}
		return next
	}
}

// serve serves until ctx ends, or until a SIGINT or SIGTERM. Before the server accepts, such a
// signal ends the process at once: the file, or the folder of a socket, may keep serve waiting for
// long, and no request has been answered yet. A SIGHUP takes effect when the server accepts.
func (s *service) serve(ctx context.Context, cmd *cli.Command) (err error) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP) // otherwise a SIGHUP would end the process
	defer signal.Stop(again)
	// Otherwise the next line of the log would end the process when the log's reader has gone.
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, syscall.SIGPIPE)
	defer signal.Stop(unread)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer s.log.begin(ctx, cmd.Root().ErrWriter)()
	db, err := s.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	server, err := s.server(db)
	if err != nil {
		return err
	}
	listener, url, err := s.address.listen(s.tls)
	if err != nil {
		return err
	}
	caught := newSignals(os.Interrupt, syscall.SIGTERM)
	defer caught.stop()
	defer caught.onFirst(func(one os.Signal) { end(&signalled{one}) })()
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	logStart(s.logger, db, s.path, url)
	if _, err = fmt.Fprintln(cmd.Root().Writer, url); err == nil {
		s.notify(notifyReady)
		err = s.attend(ctx, server.token, again, ended)
	}
	s.notify(notifyEnds)
	logEnd(s.logger, db, cmp.Or(err, context.Cause(ctx)), began, server.metrics.serving.Load())
	err = errors.Join(err, server.stop(windUp))
	<-ended
	return err
}

// open opens the database. It makes no new file if the server cannot listen at the address. If the
// file exists, open does not try the address first: the server that has both may be about to end.
func (s *service) open() (*lockd.DB, error) {
	if s.path == "" {
		return lockd.New(&s.db)
	}
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		l, _, err := s.address.listen(nil)
		if err != nil {
			return nil, err
		}
		_ = l.Close() // it was only to find out
	}
	db, err := lockd.Open(s.path, &s.db)
	return db, advisedOnFile(err)
}

// ownServer is the server of a service.
type ownServer struct {
	*httpServer
	token   *secret // nil: none is asked for
	metrics *serverMetrics
}

// server returns the server of the database: of its API, its pages, its metrics and its health.
func (s *service) server(db *lockd.DB) (*ownServer, error) {
	api, err := consulapi.Handler(db, &s.api)
	if err != nil {
		return nil, err
	}
	metrics := newServerMetrics(db)
	api = metrics.beside(api, s.logger)
	if api, err = s.uiBeside(db, api); err != nil {
		return nil, err
	}
	if s.path != "" { // the database has the file open, so it cannot be replaced unseen
		id, err := fileID(s.path)
		if err != nil {
			return nil, err
		}
		api = sayFile(id, api)
	}
	var token *secret
	if s.token != "" {
		token = newSecret(s.token, s.tokenFile, s.logger, metrics.refused.Inc)
	}
	server := newServer(defaultLimits.within(openFiles()), s.guard(token), s.logger, api)
	server.Handler = metrics.count(healthBeside(defaultLimits, db, server.Handler))
	return &ownServer{server, token, metrics}, nil
}

// notify tells systemd. An error is no reason not to serve.
func (s *service) notify(state string) {
	if err := notify(state); err != nil {
		s.logger.Warn("systemd cannot be told", "state", state, "cause", err)
	}
}

// attend waits until ctx ends, which is no error, or the server ends. Meanwhile it reads the token
// again at each signal.
func (s *service) attend(
	ctx context.Context, token *secret, again <-chan os.Signal, ended chan error,
) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			ended <- err
			return err
		case <-again:
			s.reload(token)
		}
	}
}

// reload reads the token again.
func (s *service) reload(token *secret) {
	if token == nil {
		s.logger.Warn("SIGHUP: there is no token to read again")
		return
	}
	if err := token.reload(); err != nil {
		s.logger.Error("SIGHUP: the token stays as it was", "cause", err)
		return
	}
	s.logger.Info("SIGHUP: the token is read again", "file", s.tokenFile)
}
