package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/consul/api"
	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// atServer is the category of the commands that use a server.
const atServer = "against a server, lockd or Consul"

// clientFlags returns the command's own flags, and then those that say which server it uses. The
// environment variables are those of Consul's command.
func clientFlags(own ...cli.Flag) []cli.Flag {
	return append(own,
		&cli.StringFlag{Name: "http-addr", Value: "127.0.0.1:8500",
			Usage:   "`ADDRESS` of the server, host:port, a URL of http or https, or unix://PATH",
			Sources: fromEnv("CONSUL_HTTP_ADDR")},
		&cli.StringFlag{Name: "token", Usage: "`TOKEN` to send with each request; others on the " +
			"machine can read a command line, so better a file, or the environment",
			Sources: fromEnv("CONSUL_HTTP_TOKEN")},
		&cli.StringFlag{Name: "token-file", Usage: "`FILE` that has the token",
			Sources: fromEnv("CONSUL_HTTP_TOKEN_FILE")},
		&cli.BoolFlag{Name: "ssl", Usage: "use https if the address does not say",
			Sources: fromEnvBool("CONSUL_HTTP_SSL")},
		&cli.StringFlag{Name: "ca-file", Usage: "`FILE` of the certificate authorities that the " +
			"server's certificate may be of, in place of the system's",
			Sources: fromEnv("CONSUL_CACERT")})
}

// checkTexts refuses a flag whose text is empty, as from an unset variable of a script. Such a flag
// would be taken for one that is left out: a server would ask for no token.
func checkTexts(cmd *cli.Command) error {
	for _, f := range cmd.Flags {
		if f, ok := f.(*cli.StringFlag); ok && f.IsSet() && cmd.String(f.Name) == "" {
			return usage(cmd, "--%s is empty: give it a value, or leave it out", f.Name)
		}
	}
	return nil
}

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "write JSON"} }

// withClient returns an action that calls a function that uses a server.
func withClient(
	least, most int,
	fn func(ctx context.Context, cmd *cli.Command, c *lockclient.Client, args []string) error,
) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		args, err := operands(cmd, least, most)
		if err != nil {
			return err
		}
		c, err := client(cmd)
		if err != nil {
			return err
		}
		defer c.Close()
		return advised(cmd, fn(ctx, cmd, c, args))
	}
}

// advised adds to the error of a command what to do about it if the server cannot be reached, and
// that the server is not lockd or Consul if its answer is not theirs.
func advised(cmd *cli.Command, err error) error {
	if errors.Is(err, lockclient.ErrUnreachable) {
		if e, ok := err.(*url.Error); ok {
			err = e.Err // which has the whole text
		}
		return fmt.Errorf("%w; start one with lockd serve, or name another with --http-addr or "+
			"CONSUL_HTTP_ADDR", err)
	}
	_, isNotJSON := errors.AsType[*json.SyntaxError](err)
	answer, isAnswer := errors.AsType[*lockclient.Error](err) // of 200: a page, say
	if isNotJSON || isAnswer && answer.Status == http.StatusOK {
		return fmt.Errorf("%w; what answers at %s is neither lockd nor Consul", err,
			cmd.String("http-addr"))
	}
	return err
}

// client returns a client of the server that the flags name, or else, as with the official client,
// the environment.
func client(cmd *cli.Command) (*lockclient.Client, error) {
	if err := checkTexts(cmd); err != nil {
		return nil, err
	}
	if v := variableOf(cmd, "ssl"); v != nil && !v.parses(v.value) {
		return nil, usage(cmd, "%s %q is neither true nor false", v.name, v.value)
	}
	const verify = api.HTTPSSLVerifyEnvName
	if text := os.Getenv(verify); text != "" && !isBool(text) { // it would verify no certificate
		return nil, usage(cmd, "%s %q is neither true nor false", verify, text)
	}
	address, err := addressOf(cmd.String("http-addr"), cmd.Bool("ssl"))
	if err != nil {
		return nil, usage(cmd, "%s: %w", sourceOf(cmd, "http-addr"), err)
	}
	// With no scheme at all, CONSUL_HTTP_SSL would win over --ssl=false.
	config := api.Config{Address: address, Scheme: "http"}
	if config.Token, err = token(cmd); err != nil {
		return nil, err
	}
	if path := cmd.String("ca-file"); path != "" {
		if err := checkAuthorities(path); err != nil {
			return nil, fmt.Errorf("%s: %w", sourceOf(cmd, "ca-file"), err)
		}
		config.TLSConfig.CAFile = path
	}
	c, err := lockclient.New(config)
	if err != nil {
		err = fmt.Errorf("one of CONSUL_CAPATH, CONSUL_CLIENT_CERT and CONSUL_CLIENT_KEY: %w", err)
	}
	return c, err
}

// addressOf returns the URL of an address. If the address has no scheme, the URL is https if ssl is
// set, else http.
func addressOf(address string, ssl bool) (string, error) {
	if !strings.Contains(address, "://") {
		scheme := "http://"
		if ssl {
			scheme = "https://"
		}
		address = scheme + address
	}
	if path, isSocket := strings.CutPrefix(address, socketScheme); isSocket {
		if path == "" {
			return "", fmt.Errorf("address %q has no path", address)
		}
		path, err := filepath.Abs(path)
		return socketScheme + path, err
	}
	base, err := url.Parse(address)
	switch {
	case err != nil:
		return "", fmt.Errorf("address: %w", err)
	case base.Scheme != "http" && base.Scheme != "https":
		return "", fmt.Errorf("address %q begins with none of http://, https:// and unix://",
			base.Redacted())
	case strings.HasSuffix(base.Host, ":"): // as from a variable that is not set; it would be 80
		return "", fmt.Errorf("address %q has no port behind the colon", base.Redacted())
	case base.Host == "" || base.RawQuery != "" || base.Fragment != "" || base.User != nil:
		return "", fmt.Errorf("address %q is not of the form host:port", base.Redacted())
	}
	// The official client takes host and path for unescaped ones.
	return base.Scheme + "://" + base.Host + strings.TrimSuffix(base.Path, "/"), nil
}

// token returns the token that --token, --token-file or the variable of one of them gives, or "" if
// there is none. The command line wins over a variable.
func token(cmd *cli.Command) (string, error) {
	text, path := cmd.String("token"), cmd.String("token-file")
	textFrom, pathFrom := variableOf(cmd, "token"), variableOf(cmd, "token-file")
	if text != "" && path != "" {
		switch {
		case textFrom == nil && pathFrom == nil:
			return "", usage(cmd, "both --token and --token-file are given")
		case textFrom != nil && pathFrom != nil:
			return "", usage(cmd, "both %s and %s are set", textFrom.name, pathFrom.name)
		case textFrom == nil:
			path = ""
		}
	}
	switch {
	case path != "":
		given, err := readToken(path)
		if err != nil {
			return "", fmt.Errorf("%s: %w", sourceOf(cmd, "token-file"), err)
		}
		return given, nil
	case text == "":
		return "", nil
	}
	given, err := parseToken(text)
	if err != nil {
		return "", usage(cmd, "%s %w", sourceOf(cmd, "token"), err)
	}
	return given, nil
}

// checkAuthorities returns an error if a file has no certificate.
func checkAuthorities(path string) error {
	pem, err := os.ReadFile(path)
	if err == nil && !x509.NewCertPool().AppendCertsFromPEM(pem) {
		err = fmt.Errorf("%s has no certificate", path)
	}
	return err
}

// writeJSON writes a value as one indented document.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "\t")
	return e.Encode(v)
}
