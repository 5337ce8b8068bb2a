// Replaces the Facebook JavaScript SDK: FB.init and FB.login, which opens the simulated sign-up dialog.
(function () {
  "use strict";
  var home = new URL(document.currentScript.src).origin;
  var settings = {};

  function login(callback, options) {
    var query = new URLSearchParams({
      app_id: settings.appId || "", config_id: (options && options.config_id) || "", origin: location.origin,
      feature: (options && options.extras && options.extras.featureType) || "",
    });
    var dialog = window.open(home + "/embedded-signup?" + query, "simulated-signup", "popup,width=520,height=720");
    var over = false;

    function finish(answer) {
      if (over) return;
      over = true;
      clearInterval(watch);
      window.removeEventListener("message", listen);
      callback(answer);
    }

    function listen(event) {
      if (event.origin !== home || !event.data || event.data.source !== "simulator-sdk") return;
      finish(event.data.code
        ? { status: "connected", authResponse: { code: event.data.code, expiresIn: null, userID: null } }
        : { status: "unknown", authResponse: null });
    }

    window.addEventListener("message", listen);
    var watch = setInterval(function () {
      if (!dialog || dialog.closed) setTimeout(finish, 300, { status: "unknown", authResponse: null });
    }, 500);
  }

  window.FB = {
    init: function (options) { settings = options || {}; },
    login: login,
    getLoginStatus: function (callback) { callback({ status: "unknown", authResponse: null }); },
  };
  if (typeof window.fbAsyncInit === "function") window.fbAsyncInit();
})();
