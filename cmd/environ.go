package cmd

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// fromEnvironment sets every flag that was not typed from RELAY_<FLAG>.
func fromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		name := variable(f)
		value, set := os.LookupEnv(name)
		if err != nil || f.Changed || !set || f.Name == "help" {
			return
		}
		var invalid *pflag.InvalidValueError
		if e := flags.Set(f.Name, value); errors.As(e, &invalid) {
			err = invalidValue(name, invalid)
		} else if e != nil {
			err = usagef("%s: %v", name, e)
		}
	})
	return err
}

// variable is the environment variable that sets a flag.
func variable(f *pflag.Flag) string {
	return "RELAY_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}
