"""Commands that measure: `ab`, `soak`, `bench`; `report` puts their figures beside limits."""
